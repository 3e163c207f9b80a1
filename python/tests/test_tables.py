"""Embedding tables of which a step looks up few rows, beside PyTorch with sparse=True: nn.Embedding, and nn.EmbeddingBag in its modes."""

import pathlib
import tempfile
import unittest

import numpy as np
import program
import torch
from torch import nn

import gtc

ROWS, WIDTH, BATCH, LOOKUPS = 1000, 6, 8, 4
OPTIMIZERS = {
    "sgd": (lambda p: torch.optim.SGD(p, lr=0.1), ("--momentum", 0)),
    "adagrad": (lambda p: torch.optim.Adagrad(p, lr=0.1, eps=1e-10), ("--eps", 1e-10)),
}


class Bag(nn.Module):
    def __init__(self, mode, sparse):
        super().__init__()
        self.table = nn.EmbeddingBag(ROWS, WIDTH, mode=mode, sparse=sparse) if mode else nn.Embedding(ROWS, WIDTH, sparse=sparse)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, x):
        h = self.table(x)
        return self.head(h if h.dim() == 2 else h.mean(1))


class Tables(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(13)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.x, self.y = torch.randint(0, ROWS, (2 * BATCH, LOOKUPS)), torch.randint(0, 5, (2 * BATCH,))
        self.x[:, 0] = torch.arange(2 * BATCH) % 3  # rows that come again
        self.x[:, 1] = self.x[:, 0]  # and twice in a sample

    def compare(self, mode, name, exporter, sparse, flags=()):
        """Four steps in gtc, and in PyTorch."""
        make, given = OPTIMIZERS[name]
        module, path, out = Bag(mode, sparse), self.folder / "m.onnx", pathlib.Path(tempfile.mkdtemp(dir=self.folder), "out")
        plain = Bag(mode, False)  # exporters know no sparse gradients
        plain.load_state_dict(module.state_dict())
        report = gtc.export(plain, self.x[:BATCH], path, exporter=exporter, quiet=True)
        np.savez(self.folder / "d.npz", **{report.inputs[0]: self.x.numpy(), "target": self.y.numpy()})
        fixed = any("batch is fixed" in n for n in report.notes)
        batch = () if fixed else ("--batch", BATCH)
        program.run("compile", path, "-o", out, *batch, "--loss", "cross_entropy", "--optimizer", name, "--lr", 0.1, *given, *flags)
        told = [e["loss"] for e in gtc.run(out, data=self.folder / "d.npz", epochs=2, shuffle=False, log_every=1, json=True) if e["event"] == "step"]
        trained = Bag(mode, sparse)
        gtc.load_state(trained, out)
        optimizer, want = make(module.parameters()), []
        for _ in range(2):
            for first in 0, BATCH:
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(module(self.x[first : first + BATCH]), self.y[first : first + BATCH])
                loss.backward()
                want.append(loss.item())
                optimizer.step()
        np.testing.assert_allclose(told, want, rtol=1e-5)
        for key, t in module.state_dict().items():
            torch.testing.assert_close(trained.state_dict()[key], t, rtol=1e-4, atol=1e-6, msg=lambda m: f"{key}: {m}")
        return path, batch

    def test_bags(self):
        """sum and mean look rows up and add; max has no sparse gradient in PyTorch either."""
        for exporter in "dynamo", "torchscript":
            for mode in "sum", "mean", "max", None:
                for name in OPTIMIZERS if exporter == "dynamo" else ("sgd",):
                    with self.subTest(exporter=exporter, mode=mode, optimizer=name):
                        path, batch = self.compare(mode, name, exporter, sparse=mode != "max")
                        self.assertRegex(program.run("inspect", path, *batch), "a batch looks up 32 of its 1,?000 rows: its gradient is sparse")

    def test_two_ranks(self):
        for mode in "mean", None:
            with self.subTest(mode):
                self.compare(mode, "adagrad", "dynamo", True, ("--dp", 2))


if __name__ == "__main__":
    unittest.main()
