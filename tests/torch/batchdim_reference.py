"""Writes tests/faults/testdata: models whose samples do not lie along the leading dim, as PyTorch's exporters write them, and references.

    tests/torch/run.sh batchdim_reference.py tests/faults/testdata [NAME...]

NAME.onnx is TorchScript's, in training form; of names in DYNAMO the dynamo exporter's without its optimiser. NAME.npz has a
batch of four samples as the model takes it, output, loss, gradients and the loss before each of ten updates of SGD (lr 0.05,
momentum 0.9), in float64; data/in0…, data/target are six samples along the model's dim, and data/w/PARAM what an epoch of them in batches of four
and two makes of the parameters with SGD of lr 0.1.
"""

import copy
import pathlib
import sys
import zlib

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

B, T, C, H, V = 4, 5, 3, 4, 3
DYNAMO = {"time_gru", "time_attention"}
OPEN = {"time_lstm", "time_gru", "time_tokens", "time_attention", "time_last", "time_loss"}  # their batch can be any


class Lstm(nn.Module):
    """[T,B,C] -> [T,B,V]"""

    def __init__(self, cell=nn.LSTM):
        super().__init__()
        self.rnn, self.head = cell(C, H), nn.Linear(H, V)

    def forward(self, x):
        return self.head(self.rnn(x)[0])


class Gru(Lstm):
    """[T,B,C] -> [B,V], of the last state"""

    def __init__(self):
        super().__init__(nn.GRU)

    def forward(self, x):
        return self.head(self.rnn(x)[1][-1])


class States(nn.Module):
    """[B,T,C] with first states [1,B,H] -> [B,V]"""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(C, H, batch_first=True), nn.Linear(H, V)

    def forward(self, x, h):
        return self.head(self.rnn(x, h)[0][:, -1])


class Tokens(nn.Module):
    """[T,B] tokens with positions -> [T,B,V]"""

    def __init__(self):
        super().__init__()
        self.emb, self.pos = nn.Embedding(7, H), nn.Parameter(torch.randn(T, 1, H))
        self.rnn, self.head = nn.RNN(H, H), nn.Linear(H, V)

    def forward(self, x):
        return self.head(self.rnn(self.emb(x) + self.pos)[0])


class Attention(nn.Module):
    """Rows go through [T*B,H] inside of nn.MultiheadAttention."""

    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(C, H)
        self.layer, self.head = nn.TransformerEncoderLayer(H, 2, 6, dropout=0.0), nn.Linear(H, V)

    def forward(self, x):
        return self.head(self.layer(self.inp(x)))


class Last(nn.Module):
    """The last step that counts of each sample: h[lengths - 1, arange(B)]."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(C, H), nn.Linear(H, V)

    def forward(self, x, lengths):
        h = self.rnn(x)[0]
        return self.head(h[lengths - 1, torch.arange(h.shape[1])])


class Conv(nn.Module):
    """[C,T,B]: a convolution over time of what is turned."""

    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv1d(C, H, 3), nn.Linear(H, V)

    def forward(self, x):
        return self.head(torch.tanh(self.conv(x.permute(2, 0, 1))).mean(2))


class Columns(nn.Module):
    """Samples are columns: [C,B] -> [V,B]"""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Parameter(torch.randn(H, C) / 2), nn.Parameter(torch.randn(V, H) / 2)

    def forward(self, x):
        return self.b @ torch.tanh(self.a @ x)


class Loss(nn.Module):
    """Its own loss, on rows [T*B,V]."""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(C, H), nn.Linear(H, V)

    def forward(self, x, labels):
        y = self.head(self.rnn(x)[0])
        return F.cross_entropy(y.view(-1, V), labels.reshape(-1))


def steps(n):
    return torch.randn(T, n, C)


# Of each: the model, its inputs for n samples, the dims of their samples, the dims of the target, and its samples' dim.
CASES = {
    "time_lstm": (Lstm, lambda n: (steps(n),), (1,), lambda n: torch.randint(0, V, (T, n)), 1),
    "time_gru": (Gru, lambda n: (steps(n),), (1,), lambda n: torch.randint(0, V, (n,)), 0),
    "first_states": (States, lambda n: (torch.randn(n, T, C), torch.randn(1, n, H)), (0, 1), lambda n: torch.randint(0, V, (n,)), 0),
    "time_tokens": (Tokens, lambda n: (torch.randint(0, 7, (T, n)),), (1,), lambda n: torch.randint(0, V, (T, n)), 1),
    "time_attention": (Attention, lambda n: (steps(n),), (1,), lambda n: torch.randint(0, V, (T, n)), 1),
    "time_last": (Last, lambda n: (steps(n), torch.randint(1, T + 1, (n,))), (1, 0), lambda n: torch.randint(0, V, (n,)), 0),
    "batch_last": (Conv, lambda n: (torch.randn(C, T, n),), (2,), lambda n: torch.randint(0, V, (n,)), 0),
    "columns": (Columns, lambda n: (torch.randn(C, n),), (1,), lambda n: torch.randn(V, n), 1),
    "time_loss": (Loss, lambda n: (steps(n), torch.randint(0, V, (T, n))), (1, 1), None, None),
}


def loss_of(name, model, ins, target):
    out = model(*ins)
    if target is None:
        return out, out
    if target.is_floating_point():
        return out, F.mse_loss(out, target)
    return out, F.cross_entropy(out.reshape(-1, V), target.reshape(-1))


def double(x):
    return x.double() if x is not None and x.is_floating_point() else x


def write(folder, name):
    torch.manual_seed(zlib.crc32(name.encode()))
    build, inputs, dims, targets, target_dim = CASES[name]
    model = build().train()
    all_in, all_t = inputs(6), targets and targets(6)
    cut = lambda a, b: ([double(x.narrow(d, a, b - a)) for x, d in zip(all_in, dims)], None if all_t is None else double(all_t.narrow(target_dim, a, b - a)))
    ins, target = cut(0, B)
    wide = copy.deepcopy(model).double()
    out, loss = loss_of(name, wide, ins, target)
    loss.backward()
    ref = {f"in{i}": x.float().numpy() if x.is_floating_point() else x.numpy() for i, x in enumerate(ins)}
    ref |= {"out0": out.detach().numpy(), "loss": np.float64(loss.item())} | ({} if target is None else {"target": double(target).numpy()})
    ref |= {"grad/" + k: p.grad.numpy().copy() for k, p in wide.named_parameters()}
    ref["curve/sgd"] = np.array(descend(name, wide, [(ins, target)] * 10, 0.05, 0.9))
    again = copy.deepcopy(model).double()
    descend(name, again, [cut(0, B), cut(B, 6)], 0.1, 0)
    ref |= {f"data/w/{k}": p.detach().numpy() for k, p in again.named_parameters()}
    np.savez(folder / f"{name}.npz", **ref)
    data = {f"in{i}": x.numpy() for i, x in enumerate(all_in)} | ({} if all_t is None else {"target": all_t.numpy()})
    np.savez(folder / f"{name}_data.npz", **data)
    export(folder / f"{name}.onnx", name, model, tuple(x.narrow(d, 0, B) for x, d in zip(all_in, dims)), dims)


def export(path, name, model, ins, dims):
    names = ["x", "h", "y"][: len(ins)]
    if name in DYNAMO:
        batch = torch.export.Dim("batch", min=2)
        torch.onnx.export(model, ins, path, dynamo=True, optimize=False, verbose=False, external_data=False, opset_version=20,
                          input_names=names, dynamic_shapes=tuple({d: batch} for d in dims))
        made = onnx.load(path)
        for n in made.graph.node:
            del n.metadata_props[:]  # stack traces, with this machine's folders
        onnx.save(made, path)
        return
    axes = {n: {d: "batch"} for n, d in zip(names, dims)} if name in OPEN else None
    torch.onnx.export(model, ins, path, dynamo=False, opset_version=17, input_names=names, training=torch.onnx.TrainingMode.TRAINING,
                      do_constant_folding=False, dynamic_axes=axes)


def descend(name, model, batches, lr, momentum):
    """The loss before each update of SGD."""
    curve, sgd = [], torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    for ins, target in batches:
        sgd.zero_grad()
        loss = loss_of(name, model, ins, target)[1]
        curve.append(loss.item())
        loss.backward()
        sgd.step()
    return curve


def main():
    folder = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or CASES:
        write(folder, name)


if __name__ == "__main__":
    main()
