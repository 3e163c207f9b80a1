"""Writes passes/testdata/lora.onnx, a small model, and lora.npz, what training adapters of it gives in PyTorch:

    tests/torch/run.sh lora_reference.py passes/testdata

The adapters are those of the peft package, written out: h = W x + alpha/rank * B A x with A random and B zero (of an embedding B
random and A zero), everything else frozen. lora.npz has the batch, the adapters' first values as init/NAME, their gradients at
values that are not the first ones (B and A both random, at/NAME), the loss curves of gtc check, and the outputs after training.
All in float64.
"""

import pathlib
import sys

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

RANK, ALPHA, STEPS = 2, 6.0, 6
TARGETS = ["emb", "q_proj", "c_attn", "conv", "in_proj_weight"]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(7, 6)
        self.q_proj = nn.Linear(6, 5)
        self.c_attn = nn.Parameter(torch.randn(5, 4) * 0.4)  # [in, out], as GPT-2 has it
        self.conv = nn.Conv1d(4, 6, 3, padding=1)
        self.in_proj_weight = nn.Parameter(torch.randn(8, 6) * 0.4)  # two weights in one, read in parts
        self.head = nn.Linear(4, 3)

    def forward(self, i):
        x = torch.tanh(self.q_proj(self.emb(i))) @ self.c_attn
        x = torch.tanh(self.conv(x.transpose(1, 2))).transpose(1, 2)
        k, v = self.in_proj_weight.chunk(2)
        return self.head(F.linear(x, k) * torch.sigmoid(F.linear(x, v)))


def adapters(model, seed):
    """A and B of each target by peft's names; both random."""
    g = torch.Generator().manual_seed(seed)
    out = {}
    for t in TARGETS:
        w = dict(model.named_parameters()).get(t + ".weight", dict(model.named_parameters()).get(t))
        a, b = (RANK, *w.shape[1:]), (w.shape[0], RANK, *[1] * (w.dim() - 2))
        names = (".lora_A.weight", ".lora_B.weight")
        if t == "c_attn":
            a, b = (RANK, w.shape[0]), (w.shape[1], RANK)
        if t == "emb":
            a, b, names = (RANK, w.shape[0]), (w.shape[1], RANK), (".lora_embedding_A", ".lora_embedding_B")
        for name, shape in zip(names, (a, b)):
            out["base_model.model." + t + name] = torch.randn(shape, generator=g, dtype=torch.float64) * 0.3
    return out


def run(model, ad, i):
    """The adapted model's output."""
    def pair(t, kind=""):
        names = [f"base_model.model.{t}.lora_{kind}{k}" + ("" if kind else ".weight") for k in "AB"]
        return ad[names[0]], ad[names[1]]

    s = ALPHA / RANK
    a, b = pair("emb", "embedding_")
    x = model.emb(i) + s * F.embedding(i, a.T) @ b.T
    a, b = pair("q_proj")
    x = torch.tanh(model.q_proj(x) + s * F.linear(F.linear(x, a), b))
    a, b = pair("c_attn")
    x = x @ model.c_attn + s * F.linear(F.linear(x, a), b)
    a, b = pair("conv")
    y = x.transpose(1, 2)
    x = torch.tanh(model.conv(y) + s * F.conv1d(F.conv1d(y, a, padding=1), b)).transpose(1, 2)
    a, b = pair("in_proj_weight")
    k, v = (model.in_proj_weight + s * b @ a).chunk(2)
    return model.head(F.linear(x, k) * torch.sigmoid(F.linear(x, v)))


def forget_paths(path):
    """Takes out of the file where on this machine its program lies."""
    m = onnx.load(path)
    for n in m.graph.node:
        n.doc_string = ""
        for p in list(n.metadata_props):
            if "stack_trace" in p.key:
                n.metadata_props.remove(p)
    onnx.save(m, path)


def main():
    folder = pathlib.Path(sys.argv[1])
    torch.manual_seed(0)
    model = Model()
    i, target = torch.randint(0, 7, (2, 5)), torch.randn(2, 5, 3)
    torch.onnx.export(model, (i,), folder / "lora.onnx", dynamo=True, optimize=False, external_data=False)
    forget_paths(folder / "lora.onnx")
    model = model.double().requires_grad_(False)
    arrays = {"in0": i.numpy(), "target": target.numpy()}
    for opt in ("sgd", "adamw"):
        ad = {n: v.requires_grad_() for n, v in adapters(model, 1).items()}
        make = {"sgd": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9), "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.01)}[opt]
        step, curve = make(ad.values()), []
        arrays.update({"at/" + n: v.detach().numpy().copy() for n, v in ad.items()})
        for k in range(STEPS):
            step.zero_grad()
            loss = F.mse_loss(run(model, ad, i), target.double())
            loss.backward()
            if k == 0:
                arrays.update({"grad/" + n: v.grad.numpy().copy() for n, v in ad.items()})
            curve.append(loss.item())
            step.step()
        arrays["curve/" + opt] = np.array(curve)
        arrays.update({f"after/{opt}/{n}": v.detach().numpy() for n, v in ad.items()})
        arrays["out/" + opt] = run(model, ad, i).detach().numpy()
    np.savez(folder / "lora.npz", **arrays)


if __name__ == "__main__":
    main()
