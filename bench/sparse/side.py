"""PyTorch's side of bench/sparse: exports the model, writes its data, and does training steps on request.

    tests/torch/run.sh bench/sparse/side.py FOLDER ROWS WIDTH BATCH LOOKUPS

Writes model.onnx and data.npz into FOLDER and prints {"ready": ...}. Then, for each line "OPTIMIZER N" on standard input, does N
steps on one thread with sparse=True, and prints one line {"step": i, "loss": x, "seconds": s} for each. SparseAdam takes
sparse gradients only: Adam updates the other parameters.
"""

import json
import os
import sys
import time

import numpy as np
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, rows, width, sparse):
        super().__init__()
        self.table = nn.Embedding(rows, width, sparse=sparse)
        self.out = nn.Linear(width, 2)

    def forward(self, x):
        return self.out(self.table(x).sum(1))


def optimizers(name, model):
    if name == "sgd":
        return [torch.optim.SGD(model.parameters(), lr=0.01)]
    if name == "adagrad":
        return [torch.optim.Adagrad(model.parameters(), lr=0.01)]
    if name == "sparse_adam":
        return [torch.optim.SparseAdam(model.table.parameters(), lr=0.01), torch.optim.Adam(model.out.parameters(), lr=0.01)]
    raise SystemExit(f"side: PyTorch has no optimizer {name!r} for sparse gradients")


def main():
    folder = sys.argv[1]
    rows, width, batch, lookups = map(int, sys.argv[2:6])
    torch.set_num_threads(1)
    torch.manual_seed(0)
    source = np.random.default_rng(0)
    steps = 100
    x = torch.from_numpy(source.integers(0, rows, (steps * batch, lookups)))
    y = torch.from_numpy(source.integers(0, 2, steps * batch))
    np.savez(os.path.join(folder, "data.npz"), in0=x.numpy(), target=y.numpy())
    with open(os.devnull, "w") as quiet:
        out, sys.stdout = sys.stdout, quiet
        dims = ({0: torch.export.Dim("batch", min=2)},)
        torch.onnx.export(Model(rows, width, False).train(), (x[:batch],), os.path.join(folder, "model.onnx"), dynamo=True,
                          optimize=False, dynamic_shapes=dims)
        sys.stdout = out
    print(json.dumps(dict(ready=f"torch {torch.__version__.split('+')[0]}")), flush=True)
    states = {}
    for line in sys.stdin:
        name, count = line.split()
        if name not in states:
            model = Model(rows, width, True)
            states = {name: (model, optimizers(name, model))}  # one at a time: each has a table
            count = -int(count)
        model, opts = states[name]
        for i in range(-20 if int(count) < 0 else 0, abs(int(count))):  # the first of a model do not count
            at = i % steps * batch
            start = time.perf_counter()
            for o in opts:
                o.zero_grad()
            loss = nn.functional.cross_entropy(model(x[at : at + batch]), y[at : at + batch])
            loss.backward()
            for o in opts:
                o.step()
            loss = loss.item()
            if i >= 0:
                print(json.dumps(dict(step=i + 1, loss=loss, seconds=time.perf_counter() - start)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
