"""gtc.record: files of PyTorch's own exporters, in each of their forms, train as their module does once the record is in them."""

import copy
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


class Partly(nn.Module):
    """A padded table that is the head's weight, a frozen layer, a frozen norm, and batch statistics of which some are kept."""

    def __init__(self, norms):
        super().__init__()
        self.emb, self.head = nn.Embedding(11, 8, padding_idx=4), nn.Linear(8, 11, bias=False)
        self.a, self.b, self.scale = nn.Linear(8, 8), nn.Linear(8, 8), nn.LayerNorm(8)
        self.moving, self.kept = (nn.BatchNorm1d(8), nn.BatchNorm1d(8)) if norms else (nn.Identity(), nn.Identity())
        self.head.weight = self.emb.weight
        self.b.requires_grad_(False)
        self.scale.requires_grad_(False)
        for m in self.modules():
            if isinstance(m, nn.BatchNorm1d):
                nn.init.uniform_(m.running_mean, -0.2, 0.2)
                nn.init.uniform_(m.running_var, 0.5, 2)

    def train(self, mode=True):
        super().train(mode)
        self.kept.eval()
        return self

    def forward(self, x):
        h = self.scale(self.b(torch.tanh(self.moving(self.a(self.emb(x))))))
        return self.head(self.kept(h))


def default(module, x, path):
    torch.onnx.export(module, (x,), path, dynamo=True, verbose=False)


def unoptimised(module, x, path):
    torch.onnx.export(module, (x,), path, dynamo=True, optimize=False, verbose=False)


def torchscript(module, x, path):
    torch.onnx.export(module, (x,), path, dynamo=False, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False, input_names=["x"])


class Records(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(9)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.path = self.folder / "m.onnx"
        self.x, self.y = torch.tensor([4, 0, 1, 4, 7, 10]), torch.randint(0, 11, (6,))
        np.savez(self.folder / "d.npz", x=self.x.numpy(), target=self.y.numpy())

    def trained(self):
        """The state dict after two steps."""
        out = pathlib.Path(tempfile.mkdtemp(dir=self.folder), "out")
        program.run("compile", self.path, "-o", out, "--loss", "cross_entropy", "--optimizer", "sgd", "--lr", 0.3)
        program.run("run", out, "--data", self.folder / "d.npz", "--steps", 2, "--save-every", 2)
        program.run("export", out, "-o", self.folder / "w.safetensors")
        return load_file(self.folder / "w.safetensors")

    def expected(self, module):
        module = copy.deepcopy(module).train()
        optimizer = torch.optim.SGD([p for p in module.parameters() if p.requires_grad], lr=0.3)
        for _ in range(2):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(self.x), self.y).backward()
            optimizer.step()
        return {n: t for n, t in module.state_dict().items() if not n.endswith("num_batches_tracked")}

    def test_each_form_trains_as_the_module(self):
        for export, norms in (default, False), (unoptimised, True), (unoptimised, False), (torchscript, True), (torchscript, False):
            with self.subTest(export.__name__, norms=norms), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                module = Partly(norms).train()
                export(module, self.x, self.path)
                found = gtc.record(module, self.path)
                self.assertEqual(found["gtc.frozen"], ["b.weight", "b.bias", "scale.weight", "scale.bias"])
                self.assertEqual((found["gtc.padding"], found["gtc.tied"]), ({"emb.weight": 4}, {"head.weight": "emb.weight"}))
                self.assertEqual(found["gtc.evaluation"], ["kept"] if norms else [])
                state, want = self.trained(), self.expected(module)
                module.load_state_dict(state)
                for name, t in want.items():
                    torch.testing.assert_close(state[name], t, rtol=1e-4, atol=2e-6, msg=lambda m: f"{name}: {m}")

    def test_flags_go_over_the_record_and_loss_is_taken(self):
        module = Partly(False).train()
        unoptimised(module, self.x, self.path)
        gtc.record(module, self.path, loss="cross_entropy")
        told = program.run("inspect", self.path)
        self.assertRegex(told, r"b\.weight.*\n.*requires_grad=False, as gtc.record noted")
        self.assertRegex(program.run("inspect", self.path, "--train", "b.weight"), r"parameter +b\.weight")
        program.run("compile", self.path, "-o", self.folder / "out", "--no-build")  # without --loss

    def test_what_does_not_fit_is_refused(self):
        module = Partly(False)
        gtc.export(module, self.x, self.path, quiet=True)
        with self.assertRaisesRegex(ValueError, "gtc.export, which has recorded"):
            gtc.record(module, self.path)
        unoptimised(module.train(), self.x, self.path)
        with self.assertRaisesRegex(ValueError, "names none of the parameters of Sequential"):
            gtc.record(nn.Sequential(nn.Sequential(nn.Linear(2, 2))), self.path)


if __name__ == "__main__":
    unittest.main()
