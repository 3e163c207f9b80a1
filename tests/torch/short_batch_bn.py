"""Prints what PyTorch makes of ../shared/faults/short_batch_bn in float64, whose last batch is short: the numbers of tests/faults/shortbatch_test.go.

    tests/torch/run.sh short_batch_bn.py ../shared/faults

Each rank and micro-batch takes statistics of its own samples, in order, as BatchNorm does in DistributedDataParallel and under gradient
accumulation; one that has none takes none. Gradients are of the mean over all samples of the batch.
"""

import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch.nn import functional as F


def main(folder):
    model = onnx.load(folder / "short_batch_bn.onnx")
    first = {i.name: torch.tensor(numpy_helper.to_array(i)).double() for i in model.graph.initializer}
    norms = [{a.name: helper.get_attribute_value(a) for a in n.attribute} for n in model.graph.node if n.op_type == "BatchNormalization"]
    with np.load(folder / "short_batch_bn.npz") as z:
        x, target = torch.tensor(z["in0"]).double(), torch.tensor(z["target"])

    def forward(x, weights, statistics, training):
        for conv, norm, a in zip(("bb.0", "bb.3"), ("bb.1", "bb.4"), norms):
            x = F.conv2d(x, weights[conv + ".weight"], weights[conv + ".bias"], padding=1)
            x = F.batch_norm(x, statistics[norm + ".running_mean"], statistics[norm + ".running_var"], weights[norm + ".weight"],
                             weights[norm + ".bias"], training, 1 - a["momentum"], a["epsilon"]).relu()
        return F.linear(x.mean((2, 3)), weights["hd.weight"], weights["hd.bias"])

    for batch, ranks, micro in ((8, 1, 1), (8, 2, 1), (8, 4, 1), (8, 1, 4), (12, 1, 1), (12, 3, 1)):
        weights = {k: v.clone().requires_grad_() for k, v in first.items() if "running" not in k}
        statistics = [{k: v.clone() for k, v in first.items() if "running" in k} for _ in range(ranks)]
        for at in range(0, len(x), batch):
            total, size = 0, batch // ranks // micro
            for part in range(ranks * micro):
                own = slice(at + part * size, min(at + (part + 1) * size, len(x)))
                if own.start < own.stop:
                    total = total + F.cross_entropy(forward(x[own], weights, statistics[part // micro], True), target[own], reduction="sum")
            loss = total / min(batch, len(x) - at)
            grads = torch.autograd.grad(loss, list(weights.values()))
            weights = {k: (w - 0.1 * g).detach().requires_grad_() for (k, w), g in zip(weights.items(), grads)}
        with torch.no_grad():
            after = F.cross_entropy(forward(x, weights, statistics[0], False), target)
        print(f"--batch {batch}, {ranks} ranks, {micro} micro-batches: loss {loss:.6f}, eval {after:.6f}")
        for name in ("bb.1.running_mean", "bb.4.running_var"):
            print(f"    {name}", ", ".join(f"{v:.6f}" for v in statistics[0][name]))


main(pathlib.Path(sys.argv[1]))
