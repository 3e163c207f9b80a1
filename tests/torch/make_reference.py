"""Writes the reference that gtc check compares a model with, and the model:

    tests/torch/run.sh make_reference.py JOB.py REF.npz [MODEL.onnx]
    gtc check MODEL.onnx --reference REF.npz

JOB.py defines `model` (an nn.Module with the weights to compare), `inputs` (a tuple of tensors, one batch), `target` (a tensor;
None when the model's output is the loss) and `loss` (a function of output and target, such as F.cross_entropy). For example:

    import torch
    from torch.nn import functional as F
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    inputs, target, loss = (torch.randn(16, 8),), torch.randint(0, 3, (16,)), F.cross_entropy

The reference holds in0…, target, out0…, loss, grad/NAME and the curves of the two optimizers, computed in float64 in training
mode. Dropout is random, so nothing can be compared with it: both the reference and MODEL.onnx are of the module without.
"""

import copy
import pathlib
import runpy
import sys

import numpy as np
import torch

STEPS = 10  # updates in each curve

OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9),
    "adamw": lambda p: torch.optim.AdamW(p, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01),
}


def double(x):
    """Floats in float64; all else as it is."""
    return x.double() if torch.is_tensor(x) and x.is_floating_point() else x


def prepared(model):
    """A copy in training mode, without dropout."""
    model = copy.deepcopy(model).train()
    for m in model.modules():
        if isinstance(m, torch.nn.modules.dropout._DropoutNd):
            m.p = 0.0
        elif getattr(m, "dropout", None) and isinstance(m.dropout, float):
            m.dropout = 0.0  # attention and recurrent layers
    return model


def evaluate(job, model):
    """Outputs as a tuple, and the loss."""
    out = model(*[double(x) for x in job["inputs"]])
    outs = out if isinstance(out, (tuple, list)) else (out,)
    target = job.get("target")
    return outs, outs[0] if target is None else job["loss"](outs[0], double(target))


def reference(job):
    """All arrays of REF.npz by name."""
    arrays = {f"in{i}": x.numpy() for i, x in enumerate(job["inputs"])}
    if job.get("target") is not None:
        arrays["target"] = job["target"].numpy()
    model = prepared(job["model"]).double()
    outs, loss = evaluate(job, model)
    loss.backward()
    arrays.update({f"out{i}": x.detach().numpy() for i, x in enumerate(outs)})
    arrays["loss"] = loss.detach().numpy()
    for name, p in model.named_parameters():
        if p.grad is not None:
            arrays["grad/" + name] = p.grad.numpy()
    for name, make in OPTIMIZERS.items():
        model = prepared(job["model"]).double()
        opt, curve = make(model.parameters()), []
        for _ in range(STEPS):
            opt.zero_grad()
            loss = evaluate(job, model)[1]
            loss.backward()
            curve.append(loss.item())
            opt.step()
        arrays["curve/" + name] = np.array(curve)
    return arrays


def main():
    if len(sys.argv) not in (3, 4):
        raise SystemExit(__doc__)
    job = runpy.run_path(sys.argv[1])
    arrays = reference(job)
    np.savez(sys.argv[2], **arrays)
    print(f"{pathlib.Path(sys.argv[2])}: {len(arrays)} arrays, loss {float(arrays['loss']):.6g}")
    if len(sys.argv) == 4:
        model = prepared(job["model"])
        shapes = tuple({0: torch.export.Dim("batch", min=2)} if x.dim() else None for x in job["inputs"])
        torch.onnx.export(model, job["inputs"], sys.argv[3], dynamo=True, optimize=False, dynamic_shapes=shapes)


if __name__ == "__main__":
    main()
