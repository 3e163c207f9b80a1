"""Writes f64.onnx, f16.onnx and bf16.onnx with a reference of each: one model in three element types.

    pip install torch onnx numpy
    python elements.py

References are computed in float64 from weights and data as the type holds them; the reference of the output and of the
loss is that of one step, and the curves are those of training in float64.
"""
import numpy as np
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3, padding=1)
        self.norm = nn.LayerNorm(16)
        self.fc1 = nn.Linear(64, 16)
        self.fc2 = nn.Linear(16, 3)

    def forward(self, x):
        x = torch.relu(self.conv(x)).flatten(1)
        return self.fc2(torch.nn.functional.gelu(self.norm(self.fc1(x))))


def curve(model, x, target, optimizer):
    out = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return np.array(out)


def main():
    for name, dtype in ("f64", torch.float64), ("f16", torch.float16), ("bf16", torch.bfloat16):
        torch.manual_seed(3)
        model = Net().to(dtype)
        x, target = torch.randn(6, 2, 4, 4).to(dtype), torch.randn(6, 3).to(dtype)
        torch.onnx.export(model, (x,), name + ".onnx", dynamo=False, opset_version=17, do_constant_folding=False,
                          training=torch.onnx.TrainingMode.TRAINING, input_names=["x"], output_names=["y"])
        exact = Net().double()
        exact.load_state_dict({k: v.double() for k, v in model.state_dict().items()})
        state = {k: v.clone() for k, v in exact.state_dict().items()}
        x, target = x.double(), target.double()
        loss = nn.functional.mse_loss(exact(x), target)
        loss.backward()
        numpy = {"f64": np.float64, "f16": np.float16, "bf16": np.float32}[name]
        ref = {"in0": x.numpy().astype(numpy), "target": target.numpy().astype(numpy),
               "out0": exact(x).detach().numpy(), "loss": np.array(loss.item())}
        for key, p in exact.named_parameters():
            ref["grad/" + key] = p.grad.numpy().copy()
        ref["curve/sgd"] = curve(exact, x, target, torch.optim.SGD(exact.parameters(), lr=0.05, momentum=0.9))
        exact.load_state_dict(state)
        ref["curve/adamw"] = curve(exact, x, target, torch.optim.AdamW(exact.parameters(), lr=1e-3, weight_decay=0.01))
        np.savez(name + ".npz", **ref)
        print(name, ref["loss"], ref["curve/sgd"][-1], ref["curve/adamw"][-1])


if __name__ == "__main__":
    main()
