"""State dicts of `gtc export` in the module that they come from, by PyTorch's own strict load_state_dict."""

import pathlib
import tempfile
import unittest
import warnings

import numpy as np
import program
import torch
from safetensors.torch import load_file
from torch import nn

import gtc


class Tied(nn.Module):
    """A table that is the head's weight too, batch statistics, and buffers of each kind."""

    def __init__(self, norm=nn.BatchNorm1d):
        super().__init__()
        self.emb, self.norm, self.head = nn.Embedding(11, 8), norm(8), nn.Linear(8, 11, bias=False)
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)
        self.head.weight = self.emb.weight
        self.b.weight = self.a.weight
        self.register_buffer("shift", torch.randn(8))
        self.register_buffer("order", torch.randperm(8))
        self.register_buffer("passing", torch.randn(8), persistent=False)

    def forward(self, x):
        h = self.norm(self.emb(x) + self.shift)[:, self.order] + self.passing
        return self.head(torch.relu(self.b(torch.relu(self.a(h)))))


class WithIdle(Tied):
    def __init__(self):
        super().__init__()
        self.idle = nn.Linear(2, 2)
        self.register_buffer("unread", torch.randn(3))


def default(module, x, path):
    torch.onnx.export(module, (x,), path, dynamo=True, verbose=False)


def unoptimised(module, x, path):
    torch.onnx.export(module, (x,), path, dynamo=True, optimize=False, verbose=False)


def torchscript(module, x, path):
    torch.onnx.export(module, (x,), path, dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)


class StateDicts(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.x, self.y = torch.randint(0, 11, (6,)), torch.randint(0, 11, (6,))
        np.savez(self.folder / "d.npz", x=self.x.numpy(), target=self.y.numpy())

    def trained(self, model):
        """(what export prints, its state dict) after two steps of SGD."""
        out, file = tempfile.mkdtemp(dir=self.folder) + "/out", self.folder / "w.safetensors"
        program.run("compile", model, "-o", out, "--batch", 6, "--loss", "cross_entropy", "--optimizer", "sgd", "--lr", 0.1)
        program.run("run", out, "--data", self.folder / "d.npz", "--map", f"{self.input}=x", "--steps", 2, "--save-every", 2)
        printed = program.run("export", out, "-o", file)
        return printed, load_file(file)

    def expected(self, module):
        """The module after the same steps in PyTorch."""
        module.train()
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(self.x), self.y).backward()
            optimizer.step()
        return {n: t for n, t in module.state_dict().items() if not n.endswith("num_batches_tracked")}

    def agree(self, module, state, want, missing=()):
        found = module.load_state_dict(state, strict=not missing)  # raises when a name is missing or not the module's
        self.assertEqual((sorted(found.missing_keys), found.unexpected_keys), (sorted(missing), []))
        for name in want.keys() - set(missing):
            t = want[name]
            torch.testing.assert_close(module.state_dict()[name], t, rtol=1e-5, atol=1e-6, msg=lambda m: f"{name}: {m}")

    def test_strict_load(self):
        file = self.folder / "m.onnx"
        for kind in "dynamo", "torchscript":
            with self.subTest(kind):
                module, self.input = Tied(), "x"
                gtc.export(module, self.x, file, exporter=kind, quiet=True)
                self.agree(Tied(), self.trained(file)[1], self.expected(module))

    def test_strict_load_of_files_of_torch_alone(self):
        """The defaults fold batch normalisation, where a layer normalisation stays, and buffers that are indices, which is told.
        TorchScript does not tell which buffers are persistent."""
        for export, norm in (default, nn.LayerNorm), (unoptimised, nn.BatchNorm1d), (torchscript, nn.BatchNorm1d):
            with self.subTest(export.__name__), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = Tied(norm)
                if export is torchscript:
                    module.register_buffer("passing", module.passing)
                self.input = "input.1" if export is torchscript else "x"
                export(module.train(), self.x, self.folder / "m.onnx")
                other = Tied(norm)
                if export is torchscript:
                    other.register_buffer("passing", other.passing)
                printed, state = self.trained(self.folder / "m.onnx")
                missing = ["order"] if export is default else []
                self.assertEqual("does not hold order of the PyTorch module" in printed, bool(missing), printed)
                self.agree(other, state, self.expected(module), missing)

    def test_what_the_file_lacks_is_told(self):
        module, self.input = WithIdle(), "x"
        report = gtc.export(module, self.x, self.folder / "m.onnx", quiet=True)
        self.assertEqual(report.unused, ["idle.weight", "idle.bias", "unread"])
        printed, state = self.trained(self.folder / "m.onnx")
        self.assertIn("does not hold idle.bias, idle.weight, unread of the PyTorch module", printed)
        missing = ["idle.bias", "idle.weight", "unread"]
        want = self.expected(module)
        self.agree(WithIdle(), state, want, missing)
        other = WithIdle()
        gtc.load_state(other, self.folder / "w.safetensors")
        self.agree(WithIdle(), {n: other.state_dict()[n] for n in want.keys() - set(missing)}, want, missing)


if __name__ == "__main__":
    unittest.main()
