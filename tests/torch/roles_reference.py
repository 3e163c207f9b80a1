"""Writes passes/testdata/roles: small models as PyTorch's exporters write them by default, and what training them gives.

    tests/torch/run.sh roles_reference.py passes/testdata/roles

NAME.onnx is the dynamo exporter's with its optimiser (buffers.onnx: TorchScript's), which folds parameters into others: gates are
reordered, rows are gathered, equal tensors merged, transposes folded, exponentials taken. NAME.npz has the batch, the gradients
and the loss before each of a few updates of SGD (lr 0.05, momentum 0.9) and AdamW (lr 1e-3, weight decay 0.01), in float64.
"""

import copy
import logging
import pathlib
import sys

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

STEPS = 4


class Gru(nn.Module):  # gates reordered, directions and biases joined
    def __init__(self):
        super().__init__()
        self.r, self.o = nn.GRU(4, 3, bidirectional=True, batch_first=True), nn.Linear(6, 2)

    def forward(self, x):
        return self.o(self.r(x)[0])


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.r, self.o = nn.LSTM(4, 3, 2, batch_first=True), nn.Linear(3, 2)

    def forward(self, x):
        return self.o(self.r(x)[0])


class Cell(nn.Module):  # one step unrolled after the other; the first state is zero and folded
    def __init__(self):
        super().__init__()
        self.c, self.o = nn.GRUCell(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        h = torch.zeros(x.shape[0], 3, dtype=x.dtype)
        for i in range(2):
            h = self.c(x[:, i], h)
        return self.o(h)


class Parts(nn.Module):  # a parameter in parts, one in two layouts, one expanded along the batch
    def __init__(self):
        super().__init__()
        self.w, self.cls, self.o = nn.Parameter(torch.randn(12, 4) * 0.3), nn.Parameter(torch.randn(1, 1, 4)), nn.Parameter(torch.randn(4, 4) * 0.3)

    def forward(self, x):
        x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1)
        q, k, v = (F.linear(x, w) for w in self.w.chunk(3))
        y = (q @ k.transpose(1, 2)).softmax(-1) @ v
        return y @ self.o.t() + F.linear(y, self.o.reshape(4, 2, 2).transpose(1, 2).reshape(4, 4))


class Bias(nn.Module):  # rows of a table at constant indices, some of them more than once
    def __init__(self):
        super().__init__()
        self.l, self.t = nn.Linear(4, 4), nn.Parameter(torch.randn(5, 2) * 0.1)
        self.register_buffer("idx", torch.arange(3)[:, None] - torch.arange(3)[None] + 2)

    def forward(self, x):
        y = self.l(x).reshape(-1, 3, 2, 2).transpose(1, 2)
        b = self.t[self.idx.view(-1)].view(3, 3, 2).permute(2, 0, 1).unsqueeze(0)
        return ((y @ y.transpose(2, 3) + b).softmax(-1) @ y).transpose(1, 2).reshape(-1, 3, 4)


class Positions(nn.Module):  # embeddings at positions, expanded to the batch
    def __init__(self):
        super().__init__()
        self.e, self.p, self.o = nn.Embedding(7, 4), nn.Embedding(5, 4), nn.Linear(4, 7, bias=False)
        self.o.weight = self.e.weight

    def forward(self, i):
        return self.o(torch.tanh(self.e(i) + self.p(torch.arange(i.shape[1]).unsqueeze(0).expand_as(i))))


class Equal(nn.Module):  # ones and zeros that are parameters, buffers and constants; the exporter merges them
    def __init__(self):
        super().__init__()
        self.n = nn.ModuleList([nn.LayerNorm(4) for _ in range(2)])
        self.i, self.j = nn.InstanceNorm1d(4), nn.InstanceNorm1d(4, affine=True)
        self.one, self.l = nn.Parameter(torch.ones(4)), nn.Linear(4, 4)
        self.register_buffer("kept", torch.ones(4))
        nn.init.zeros_(self.l.bias)
        self.gamma0, self.gamma1 = nn.Parameter(torch.full((4,), 1e-2)), nn.Parameter(torch.full((4,), 1e-2))

    def forward(self, x):
        y = self.n[1](torch.tanh(self.l(self.n[0](x)) * self.one)) * self.kept
        y = self.j(torch.sin(self.i(y.transpose(1, 2))))
        for g in (self.gamma0, self.gamma1):
            y = y + torch.tanh(y) * g.view(1, -1, 1)
        return y


class Functions(nn.Module):  # only values of functions of parameters are left
    def __init__(self):
        super().__init__()
        self.l, self.scale, self.a = nn.Linear(4, 4), nn.Parameter(torch.tensor(0.3)), nn.Parameter(torch.randn(4))
        self.s = nn.Parameter(torch.randn(4))

    def forward(self, x):
        return torch.sin(self.l(x)) * self.scale.exp() * (-torch.exp(self.a)) + F.softplus(self.s)


class Copies(nn.Module):  # layers that start out equal and part
    def __init__(self):
        super().__init__()
        l = nn.Linear(4, 4)
        self.ls = nn.ModuleList([copy.deepcopy(l) for _ in range(3)])

    def forward(self, x):
        for l in self.ls:
            x = torch.tanh(l(x))
        return x


class Buffers(nn.Module):  # buffers that look like weights, after one that is a mask
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 4)
        self.register_buffer("mask", torch.tril(torch.ones(3, 3)))
        self.register_buffer("mean", torch.rand(4))
        self.register_buffer("proj", torch.randn(4, 4))

    def forward(self, x):
        y = self.l(x - self.mean)
        return (y @ y.transpose(1, 2)).masked_fill(self.mask == 0, float("-inf")).softmax(-1) @ y @ self.proj


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
    folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    for kind in (Gru, Lstm, Cell, Parts, Bias, Positions, Equal, Functions, Copies, Buffers):
        torch.manual_seed(0)
        model, name = kind(), kind.__name__.lower()
        x = torch.randint(0, 7, (2, 3)) if kind is Positions else torch.randn(2, 3, 4)
        target = torch.randn_like(model(x))
        path = folder / f"{name}.onnx"
        if kind is Buffers:
            torch.onnx.export(model, (x,), path, dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, opset_version=17)
        else:
            torch.onnx.export(copy.deepcopy(model).train(), (x,), path, dynamo=True, external_data=False, verbose=False)
        forget_paths(path)
        arrays = {"in0": x.numpy(), "target": target.numpy()}
        x, target = x if kind is Positions else x.double(), target.double()
        for opt, make in (("sgd", lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)), ("adamw", lambda p: torch.optim.AdamW(p, lr=1e-3, weight_decay=0.01))):
            m, curve = copy.deepcopy(model).double().train(), []
            step = make(m.parameters())
            for k in range(STEPS):
                step.zero_grad()
                loss = F.mse_loss(m(x), target)
                loss.backward()
                if k == 0:
                    arrays.update({"grad/" + n: p.grad.numpy().copy() for n, p in m.named_parameters()})
                curve.append(loss.item())
                step.step()
            arrays["curve/" + opt] = np.array(curve)
        np.savez(folder / f"{name}.npz", **arrays)
        print(name)


if __name__ == "__main__":
    main()
