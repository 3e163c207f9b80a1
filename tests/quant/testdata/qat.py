"""Writes qat.onnx and qat.npz: a model trained with fake quantisation, exported by PyTorch, and what PyTorch computes.

    pip install torch onnx onnxscript numpy
    python qat.py

The reference has what gtc check compares: the output, the loss, the gradients at the first step and the losses of ten
updates by SGD and by AdamW.
"""
import numpy as np
import torch
from torch import fake_quantize_per_channel_affine as per_channel
from torch import fake_quantize_per_tensor_affine as per_tensor
from torch import nn

torch.manual_seed(7)


class QAT(nn.Module):
    """Weights quantised per channel to int8, activations per tensor to uint8; some of each are clipped."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 6, 3, padding=1)
        self.fc1 = nn.Linear(6 * 6 * 6, 12)
        self.fc2 = nn.Linear(12, 4)
        self.register_buffer("zero", torch.zeros(12, dtype=torch.int32))
        for name in ("conv", "fc1", "fc2"):
            w = getattr(self, name).weight.detach().flatten(1)
            self.register_buffer(name + "_scale", (w.abs().max(1).values / 140).contiguous())

    def weight(self, name):
        w, s = getattr(self, name).weight, getattr(self, name + "_scale")
        return per_channel(w, s, self.zero[: w.shape[0]], 0, -128, 127)

    def forward(self, x):
        x = per_tensor(x, 0.017, 120, 0, 255)
        x = nn.functional.conv2d(x, self.weight("conv"), self.conv.bias, padding=1)
        x = per_tensor(torch.relu(x), 0.006, 0, 0, 255).flatten(1)
        x = torch.tanh(nn.functional.linear(x, self.weight("fc1"), self.fc1.bias))
        x = per_tensor(x, 0.0071, 0, -128, 127)
        return nn.functional.linear(x, self.weight("fc2"), self.fc2.bias)


def loss_of(model, x, target):
    return nn.functional.mse_loss(model(x), target)


def curve(model, x, target, optimizer):
    out = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = loss_of(model, x, target)
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return np.array(out)


def main():
    model = QAT()
    state = {k: v.clone() for k, v in model.state_dict().items()}
    x, target = torch.randn(8, 2, 6, 6), torch.randn(8, 4)
    # Rounding happens in single precision in PyTorch as in gtc: ties would fall differently in double.
    ref = {"in0": x.numpy(), "target": target.numpy(), "out0": model(x).detach().numpy()}
    loss = loss_of(model, x, target)
    loss.backward()
    ref["loss"] = np.array(loss.item())
    for name, p in model.named_parameters():
        ref["grad/" + name] = p.grad.numpy().copy()
    torch.onnx.export(model, (x,), "qat.onnx", dynamo=False, opset_version=17, do_constant_folding=False,
                      training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], output_names=["y"])
    ref["curve/sgd"] = curve(model, x, target, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))
    model.load_state_dict(state)
    ref["curve/adamw"] = curve(model, x, target, torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01))
    np.savez("qat.npz", **ref)
    print(ref["loss"], ref["curve/sgd"], ref["curve/adamw"])


if __name__ == "__main__":
    main()
