"""Writes tests/faults/testdata: models that index hidden states by sample, as PyTorch's exporters write them, and references.

    tests/torch/run.sh gathers_reference.py tests/faults/testdata

NAME.onnx is TorchScript's, in training form; of names in DYNAMO the dynamo exporter's without its optimiser. NAME.npz has the
batch of four samples, output, loss, gradients and the loss before each of ten updates of SGD (lr 0.05, momentum 0.9), in float64.
"""

import copy
import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import nn
from torch.nn import functional as F

B, T, C, V = 4, 6, 8, 5
DYNAMO = {"gather_take_along", "gather_llama"}


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb, self.l, self.head = nn.Embedding(11, C), nn.Linear(C, C), nn.Linear(C, V)

    def body(self, x):
        return torch.tanh(self.l(self.emb(x)))


class Clip(Model):  # the text model of CLIP pools at the greatest token
    def forward(self, x):
        h = self.body(x)
        return self.head(h[torch.arange(h.shape[0]), x.argmax(-1)])


class Llama(Model):  # sequence classification: the last token that is no padding
    def forward(self, x):
        h = self.head(self.body(x))
        at = torch.arange(x.shape[-1], dtype=torch.int32) * (x != 0).to(torch.int32)
        return h[torch.arange(h.shape[0]), at.argmax(-1)]


class GPT2(Model):  # the same, as it was done before
    def forward(self, x):
        h = self.head(self.body(x))
        at = (torch.eq(x, 0).int().argmax(-1) - 1) % x.shape[-1]
        return h[torch.arange(h.shape[0]), at]


class LastToken(Model):  # TorchScript makes a row of the table of all samples of it, and nothing proves whose
    def forward(self, x):
        h = self.head(self.body(x))
        return h[torch.arange(h.shape[0]), (x != 0).sum(-1) - 1]


class Masked(Model):  # gather_indexes of BERT's first masked language model: flat positions
    def forward(self, x, pos):
        h = self.body(x)
        first = (torch.arange(h.shape[0]) * h.shape[1]).unsqueeze(1)
        rows = h.reshape(-1, C).index_select(0, (pos + first).reshape(-1))
        return self.head(rows.reshape(h.shape[0], -1, C))


class Rows(Model):
    def forward(self, x):
        h = self.body(x)
        return self.head(h.reshape(-1, C)[torch.arange(h.shape[0]) * h.shape[1] + x.argmax(-1)])


class TakeAlong(Model):
    def forward(self, x, pos):
        return self.head(torch.take_along_dim(self.body(x), pos.unsqueeze(-1), 1))


class Pairs(Model):
    def forward(self, x, pos):
        h = self.body(x)
        return self.head(h[torch.arange(h.shape[0]).unsqueeze(1), pos])


class Triples(Model):
    def forward(self, x):
        h = self.body(x)
        y = h[torch.arange(h.shape[0]).unsqueeze(1), torch.arange(T).unsqueeze(0), x % C]
        return self.head(y.unsqueeze(-1) * h).mean(1)


class Put(Model):
    def forward(self, x, pos):
        h = self.body(x)
        h = h.index_put((torch.arange(h.shape[0]).unsqueeze(1), pos), torch.full((), 0.5, dtype=h.dtype))
        return self.head(h).mean(1)


class PutAdd(Model):
    def forward(self, x, pos):
        h = self.body(x)
        h = h.index_put((torch.arange(h.shape[0]).unsqueeze(1), pos), self.emb(pos), accumulate=True)
        return self.head(h).mean(1)


class PutOne(Model):
    def forward(self, x):
        h = self.body(x)
        h = h.index_put((torch.arange(h.shape[0]), x.argmax(-1)), self.emb(x[:, 0]))
        return self.head(h).mean(1)


class Neighbour(Model):  # reads the sample behind: samples meet
    def forward(self, x):
        h = self.body(x)
        return self.head(h[(torch.arange(h.shape[0]) + 1) % h.shape[0], x.argmax(-1)])


class RowBefore(Model):  # -1 of a flat position: the last row of the sample before, in one sample of these
    def forward(self, x):
        h = self.body(x)
        return self.head(h.reshape(-1, C)[torch.arange(h.shape[0]) * h.shape[1] + x.argmax(-1) - 1])


class Bag(nn.Module):  # TorchScript writes a loop over the samples
    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.EmbeddingBag(11, C, mode="mean"), nn.Linear(C, V)

    def forward(self, x):
        return self.head(self.emb(x))


CASES = {
    "gather_clip": Clip, "gather_llama": Llama, "gather_gpt2": GPT2, "gather_last_token": LastToken, "gather_masked": Masked,
    "gather_rows": Rows, "gather_take_along": TakeAlong, "gather_pairs": Pairs, "gather_triples": Triples, "scatter_put": Put,
    "scatter_add": PutAdd, "scatter_one": PutOne, "gather_neighbour": Neighbour, "gather_row_before": RowBefore,
    "gather_bag": Bag,
}
POSITIONS = {"gather_masked", "gather_take_along", "gather_pairs", "scatter_put", "scatter_add"}


def loss_of(model, ins, target):
    out = model(*ins)
    return out, F.cross_entropy(out.reshape(-1, V), target.reshape(-1))


def write(folder, name):
    torch.manual_seed(7)
    model = CASES[name]().train()
    x = torch.randint(1, 10, (B, T))
    x[0, 4:], x[2, 3:], x[3, 5] = 0, 0, 0
    x[1, 0] = 10  # the greatest is the first
    ins = (x,)
    if name in POSITIONS:
        ins += (torch.stack([torch.randperm(T)[:3] for _ in range(B)]),)
    wide = copy.deepcopy(model).double()
    target = torch.randint(0, V, wide(*ins).shape[:-1])
    out, loss = loss_of(wide, ins, target)
    loss.backward()
    ref = {f"in{i}": v.numpy() for i, v in enumerate(ins)}
    ref |= {"target": target.numpy(), "out0": out.detach().numpy(), "loss": np.float64(loss.item())}
    ref |= {"grad/" + k: p.grad.numpy() for k, p in wide.named_parameters()}
    np.savez(folder / f"{name}.npz", **ref, **{"curve/sgd": descend(wide.parameters(), lambda: loss_of(wide, ins, target)[1])})
    names = ["x", "pos"][: len(ins)]
    if name in DYNAMO:
        batch = torch.export.Dim("batch", min=2)
        torch.onnx.export(model, ins, folder / f"{name}.onnx", dynamo=True, optimize=False, verbose=False, external_data=False,
                          opset_version=20, input_names=names, dynamic_shapes=tuple({0: batch} for _ in ins))
        made = onnx.load(folder / f"{name}.onnx")
        for n in made.graph.node:
            del n.metadata_props[:]  # stack traces, with this machine's folders
        onnx.save(made, folder / f"{name}.onnx")
    else:
        torch.onnx.export(model, ins, folder / f"{name}.onnx", dynamo=False, opset_version=17, input_names=names, output_names=["y"],
                          training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False, dynamic_axes={n: {0: "batch"} for n in names})


def tensor_scatter(folder):
    """A cache that each sample writes from its own place on, which the exporters have no name for: the graph is made by hand."""
    torch.manual_seed(7)
    steps, w = 2, torch.randn(3, 3)
    cache, u, at, target = torch.randn(B, T, 3), torch.randn(B, steps, 3), torch.tensor([0, 5, 3, 4]), torch.tensor([0, 2, 1, 1])
    types = onnx.TensorProto
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["u", "w"], ["v"], name="project"),
         helper.make_node("TensorScatter", ["cache", "v", "at"], ["full"], name="write", axis=1, mode="circular"),
         helper.make_node("MatMul", ["full", "w"], ["z"], name="read"),
         helper.make_node("ReduceMean", ["z", "axes"], ["y"], name="mean", keepdims=0)], "tensor_scatter",
        [helper.make_tensor_value_info("cache", types.FLOAT, ["N", T, 3]), helper.make_tensor_value_info("u", types.FLOAT, ["N", steps, 3]),
         helper.make_tensor_value_info("at", types.INT64, ["N"])], [helper.make_tensor_value_info("y", types.FLOAT, ["N", 3])],
        [numpy_helper.from_array(w.numpy(), "w"), numpy_helper.from_array(np.array([1]), "axes")])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10), folder / "tensor_scatter.onnx")
    wide = w.double().requires_grad_()

    def forward():
        places = (torch.arange(B).unsqueeze(1), (at.unsqueeze(1) + torch.arange(steps)) % T)
        out = (cache.double().index_put(places, u.double() @ wide) @ wide).mean(1)
        return out, F.cross_entropy(out, target)

    out, loss = forward()
    loss.backward()
    ref = {"in0": cache.numpy(), "in1": u.numpy(), "in2": at.numpy(), "target": target.numpy(), "out0": out.detach().numpy(),
           "loss": np.float64(loss.item()), "grad/w": wide.grad.numpy().copy()}
    np.savez(folder / "tensor_scatter.npz", **ref, **{"curve/sgd": descend([wide], lambda: forward()[1])})


def descend(params, loss_of):
    """The loss before each of ten updates of SGD."""
    curve, sgd = [], torch.optim.SGD(params, lr=0.05, momentum=0.9)
    for _ in range(10):
        sgd.zero_grad()
        loss = loss_of()
        curve.append(loss.item())
        loss.backward()
        sgd.step()
    return np.array(curve)


def main():
    folder = pathlib.Path(sys.argv[1])
    for name in sys.argv[2:] or [*CASES, "tensor_scatter"]:
        if name == "tensor_scatter":
            tensor_scatter(folder)
        else:
            write(folder, name)


if __name__ == "__main__":
    main()
