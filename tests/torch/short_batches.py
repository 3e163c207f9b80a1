"""Makes tests/batches/testdata/short_batches.zip: small models, and what PyTorch makes of them in float64 when the last batch of an
epoch is not full.

    tests/torch/run.sh short_batches.py [NAME...]

NAMEs write those models' entries alone anew. A model that fails is left out and named at the end, with exit code 1. Two epochs of batches in order, the second one of `rest` samples, from 1 to the whole batch. NAME.onnx is
the model, NAME.npz holds its data for the two batches (in0…, target), and for each rest

    keep/REST/losses       the loss of each step
    keep/REST/w/PARAM      parameters and buffers at the end
    keep/REST/eval         [1,1 or 2] the loss in evaluation mode over all samples, and of classifiers the share of right ones

drop/… is the same for the first batch alone, as with DataLoader's drop_last; its eval has a row for each number of samples from one
batch to two. ranks/R/… is what R ranks of DistributedDataParallel do, each with its rows of the whole batch: rank r takes rows
r*batch/R to (r+1)*batch/R, as far as there are any, normalises by its own, and the statistics of rank 0 are kept. PyTorch refuses to
normalise by one value; one() says what is right then.
"""

import contextlib
import copy
import io
import json
import os
import pathlib
import sys
import tempfile
import zipfile
import zlib

import numpy as np
import onnx
import torch
from torch import nn
from torch.nn import functional as F

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python"))
import gtc  # noqa: E402
from short_batch_models import MODELS  # noqa: E402

OUT = pathlib.Path(__file__).resolve().parents[1] / "batches" / "testdata" / "short_batches.zip"
EPOCHS = 2

LOSSES = {
    "cross_entropy": lambda y, t, how: F.cross_entropy(y.movedim(1 if y.dim() > 3 else -1, -1).reshape(t.numel(), -1), t.reshape(-1), reduction=how),
    "nll": lambda y, t, how: F.nll_loss(y, t, reduction=how),
    "mse": lambda y, t, how: F.mse_loss(y, t, reduction=how),
    "l1": lambda y, t, how: F.l1_loss(y, t, reduction=how),
    "huber": lambda y, t, how: F.huber_loss(y, t, reduction=how),
    "bce": lambda y, t, how: F.binary_cross_entropy(y, t, reduction=how),
    "bce_logits": lambda y, t, how: F.binary_cross_entropy_with_logits(y, t, reduction=how),
    "kl_div": lambda y, t, how: F.kl_div(y, t, reduction=how),
    "graph": None,
}

OPTIMIZERS = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr=lr),
    "momentum": lambda p, lr: torch.optim.SGD(p, lr=lr, momentum=0.9),
    "adamw": lambda p, lr: torch.optim.AdamW(p, lr=lr, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1),
}

several = F.batch_norm


def one(x, mean, var, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
    """F.batch_norm, and for one value of each channel, which PyTorch refuses: its mean is itself and moves the running mean, it
    has no variance and moves none."""
    if not training or x.numel() // x.shape[1] > 1:
        return several(x, mean, var, weight, bias, training, momentum, eps)
    if mean is not None:
        mean.mul_(1 - momentum).add_(momentum * x.detach().reshape(-1))
    y = x - x
    return y if weight is None else y * weight.reshape(-1, *[1] * (x.dim() - 2)) + bias.reshape(-1, *[1] * (x.dim() - 2))


F.batch_norm = one
nn.BatchNorm1d._check_input_dim = lambda *_: None


def training(model):
    """Into training mode, but for modules that were built in evaluation mode."""
    frozen = [m for m in model.modules() if not m.training]
    model.train()
    for m in frozen:
        m.eval()
    return model


class Reference:
    def __init__(self, job):
        self.job = job
        torch.manual_seed(zlib.crc32(job.name.encode()))
        self.model = job.build()
        with torch.no_grad():
            for name, p in self.model.named_parameters():
                if p.dim() == 1:
                    p.add_(0.1 * torch.randn_like(p))
            for m in self.model.modules():
                if isinstance(m, nn.modules.batchnorm._BatchNorm) and m.running_mean is not None:
                    m.running_mean.normal_()
                    m.running_var.uniform_(0.5, 2)
        self.inputs = job.inputs(2 * job.batch)
        self.target = job.target(2 * job.batch) if job.target else None
        double = lambda x: x.double() if x is not None and x.is_floating_point() else x
        self.data = [double(x) for x in self.inputs], double(self.target)

    def loss(self, model, first, last, how="mean"):
        """The loss of samples first to last, and the outputs."""
        y = model(*[x[first:last] for x in self.data[0]])
        return y if self.job.loss == "graph" else LOSSES[self.job.loss](y, self.data[1][first:last], how), y

    def count(self, y, first, last):
        """What a mean over the samples divides by."""
        if self.job.loss in ("cross_entropy", "nll"):
            return int((self.data[1][first:last] != -100).sum())
        return y.numel()

    def train(self, batches, ranks=1):
        """Losses of the steps, the final weights, and the model in evaluation mode."""
        model = training(copy.deepcopy(self.model).double())
        optimizer = OPTIMIZERS[self.job.optimizer](model.parameters(), self.job.lr)
        losses = []
        for _ in range(EPOCHS):
            for first, last in batches:
                optimizer.zero_grad()
                if ranks == 1:
                    loss = self.loss(model, first, last)[0]
                else:
                    loss = self.apart(model, first, last, ranks)
                loss.backward()
                losses.append(loss.item())
                optimizer.step()
        state = {k: v.numpy() for k, v in model.state_dict().items() if v.is_floating_point()}
        return {"losses": np.array(losses), **{"w/" + k: v for k, v in state.items()}}, model.eval()

    def apart(self, model, first, last, ranks):
        """The loss over what the ranks have, each by statistics of its own; the buffers become rank 0's."""
        total, count, rows = 0, 0, self.job.batch // ranks
        norms = [(m, k, v) for m in model.modules() for k, v in m._buffers.items() if v is not None]
        kept = []
        for r in range(ranks):
            lo, hi = first + r * rows, min(first + (r + 1) * rows, last)
            if lo >= hi:
                break
            for m, k, v in norms:  # every rank begins with those of rank 0
                m._buffers[k] = v.clone()
            loss, y = self.loss(model, lo, hi, "sum")
            kept = kept or [m._buffers[k] for m, k, _ in norms]
            total, count = total + loss, count + self.count(y, lo, hi)
        for (m, k, _), v in zip(norms, kept):
            m._buffers[k] = v
        return total / count

    def evaluate(self, model, n):
        """The loss of the first n samples, and the share that is right; where samples meet, and where terms have counts of their own, a batch at a time."""
        size = self.job.batch if self.job.couples or self.job.parts else n
        parts = [(first, min(first + size, n)) for first in range(0, n, size)]
        mean = sum(self.score(model, *p) * ((p[1] - p[0]) / n) for p in parts)
        return mean * self.job.batch / n if self.job.total else mean

    def score(self, model, first, last):
        with torch.no_grad():
            loss, y = self.loss(model, first, last)
        if self.job.loss not in ("cross_entropy", "nll"):
            return np.array([loss.item()])
        t = self.data[1][first:last]
        right = y.movedim(1 if y.dim() > 3 else -1, -1).reshape(t.numel(), -1).argmax(1) == t.reshape(-1)
        return np.array([loss.item(), right.sum().item() / (t != -100).sum().item()])

    def arrays(self):
        b = self.job.batch
        out = {f"in{i}": x.numpy() for i, x in enumerate(self.inputs)}
        if self.target is not None:
            out["target"] = self.target.numpy()

        def add(where, trained, *ends):
            arrays, model = trained
            arrays["eval"] = np.array([self.evaluate(model, n) for n in ends])
            out.update({f"{where}/{k}": v for k, v in arrays.items()})

        add("drop", self.train([(0, b)]), *range(b, 2 * b + 1))
        for ranks in range(2, 5) if self.job.ranks else []:
            if b % ranks == 0:
                add(f"ranks/{ranks}/drop", self.train([(0, b)], ranks), *range(b, 2 * b + 1))
        for rest in range(1, b + 1):
            batches = [(0, b), (b, b + rest)]
            add(f"keep/{rest}", self.train(batches), b + rest)
            for ranks in range(2, 5) if self.job.ranks else []:
                if b % ranks == 0:
                    add(f"ranks/{ranks}/{rest}", self.train(batches, ranks), b + rest)
        return out

    def onnx(self, path):
        example = tuple(x[: self.job.batch] for x in self.inputs)
        with contextlib.redirect_stdout(io.StringIO()) as said:
            report = gtc.export(training(self.model), example, path, exporter=self.job.exporter)
        lost = [x for x in report.lost if "num_batches_tracked" not in x]
        if lost:
            raise ValueError(f"lost: {lost}\n{said.getvalue()}")
        model = onnx.load(path)
        for node in model.graph.node:  # stack traces: most of the bytes
            node.doc_string = ""
            del node.metadata_props[:]
        onnx.save(model, path)


def entry(archive, name, data):
    archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED, 9)


def main():
    torch.set_num_threads(1)
    kept, chosen, failed = {}, sys.argv[1:], []
    if unknown := set(chosen) - {job.name for job in MODELS}:
        sys.exit(f"no models: {', '.join(sorted(unknown))}")
    if chosen and OUT.exists():
        with zipfile.ZipFile(OUT) as old:
            kept = {n: old.read(n) for n in old.namelist()}
    for job in MODELS:
        if chosen and job.name not in chosen and job.name + ".npz" in kept:
            continue
        reference = Reference(job)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            try:
                reference.onnx(path)
                arrays = reference.arrays()
                bad = [k for k, v in arrays.items() if v.dtype.kind == "f" and not np.isfinite(v).all()]
                if bad:
                    raise ValueError(f"not finite: {bad[:5]}")
            except Exception as e:  # the others are made all the same
                print(f"{job.name}: {type(e).__name__}: {str(e)[:2000]}", flush=True)
                failed.append(job.name)
                kept.pop(job.name + ".npz", None)
                continue
            kept[job.name + ".onnx"] = pathlib.Path(path).read_bytes()
        buffer = io.BytesIO()
        np.savez(buffer, **arrays)
        kept[job.name + ".npz"] = buffer.getvalue()
        print(f"{job.name}: {len(kept[job.name + '.onnx'])} + {len(kept[job.name + '.npz'])} bytes", flush=True)
    fields = ("name", "loss", "batch", "optimizer", "lr", "couples", "ranks", "sync", "total")
    jobs = [{f: getattr(j, f) for f in fields} for j in MODELS if j.name + ".npz" in kept]
    names = {j["name"] for j in jobs}
    OUT.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(OUT, "w") as archive:
        entry(archive, "models.json", json.dumps(jobs, indent=1))
        for name in sorted(kept):
            if name.rsplit(".", 1)[0] in names:
                entry(archive, name, kept[name])
    print(f"{len(jobs)} models, {OUT.stat().st_size} bytes")
    if failed:
        sys.exit(f"{len(failed)} models failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
