"""Adapters of low rank that gtc trains (`gtc compile --lora`), in the package peft and merged into the module."""

import copy
import json
import pathlib
import tempfile
import unittest
from unittest import mock

import numpy as np
import program
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file
from torch import nn
from transformers.pytorch_utils import Conv1D

import gtc


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.proj(x))


class Net(nn.Module):
    """An embedding, weights in both orientations, a convolution, batch statistics, and a head."""

    def __init__(self):
        super().__init__()
        self.emb, self.proj, self.block, self.wide = nn.Embedding(11, 8), nn.Linear(8, 8), Block(), Conv1D(8, 8)
        self.conv, self.norm, self.head = nn.Conv1d(8, 6, 3, padding=1), nn.BatchNorm1d(6), nn.Linear(6, 5)

    def forward(self, x):
        h = self.wide(self.block(torch.tanh(self.proj(self.emb(x)))))
        return self.head(torch.relu(self.norm(self.conv(h.transpose(1, 2)))).mean(2))


class Shared(nn.Module):
    """What peft has no form for: tied weights, a weight in no module, one that another module reads in parts."""

    def __init__(self):
        super().__init__()
        self.emb, self.head = nn.Embedding(11, 8), nn.Linear(8, 11, bias=False)
        self.head.weight = self.emb.weight
        self.matrix = nn.Parameter(torch.randn(8, 8) / 3)
        self.attn = nn.MultiheadAttention(8, 2, batch_first=True)
        self.groups = nn.Conv1d(8, 8, 1, groups=2)
        self.proj = nn.Linear(8, 8)

    def forward(self, x):
        h = self.emb(x) @ self.matrix
        h = self.proj(self.attn(h, h, h, need_weights=False)[0])
        return self.head(self.groups(h.transpose(1, 2)).mean(2))


class Adapters(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(7)
        program.gtc()
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.x, self.y = torch.randint(0, 11, (6, 4)), torch.randint(0, 5, (6,))
        np.savez(self.folder / "d.npz", x=self.x.numpy(), target=self.y.numpy())

    def compiled(self, module, *flags):
        """The folder of a compiled module whose adapters are not yet trained."""
        out = pathlib.Path(tempfile.mkdtemp(dir=self.folder), "out")
        gtc.export(module, self.x, self.folder / "m.onnx", quiet=True)
        program.run("compile", self.folder / "m.onnx", "-o", out, "--batch", 6, "--loss", "cross_entropy", "--optimizer", "sgd", "--lr", 0.5, *flags)
        return out

    def trained(self, module, *flags):
        out = self.compiled(module, *flags)
        program.run("run", out, "--data", self.folder / "d.npz", "--steps", 4, "--save-every", 4)
        return out

    def test_peft_reads_what_is_exported_and_trains_alike(self):
        """Four steps in gtc are those of peft from the same first values; merged in either way they are the same module. One of
        the two modules that end in proj has no adapter, but is trained itself."""
        module = Net()
        named = ["emb", "proj", "wide", "conv"]
        out = self.trained(module, "--lora", "rank=2,alpha=6," + ",".join("target=" + n + ".weight" for n in named), "--train", "head.*", "--train", "block.*")
        program.run("export", out, "--initial", "--format", "peft", "-o", self.folder / "first")
        program.run("export", out, "--format", "peft", "-o", self.folder / "last")
        first = PeftModel.from_pretrained(copy.deepcopy(module), self.folder / "first", is_trainable=True)
        self.assertEqual(sorted(n for n, m in first.base_model.model.named_modules() if hasattr(m, "lora_A")), sorted(named))
        for part in first.base_model.model.head, first.base_model.model.block:
            part.requires_grad_(True)
        optimizer = torch.optim.SGD([p for p in first.parameters() if p.requires_grad], lr=0.5)
        first.train()
        for _ in range(4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(first(self.x), self.y).backward()
            optimizer.step()
        last = PeftModel.from_pretrained(copy.deepcopy(module), self.folder / "last").eval()
        merged, from_folder = Net().eval(), Net().eval()
        program.run("export", out, "--merge-lora", "-o", self.folder / "merged.safetensors")
        merged.load_state_dict(load_file(self.folder / "merged.safetensors"))
        gtc.load_state(from_folder, out)
        with torch.no_grad():
            want, start = first.eval()(self.x), module.eval()(self.x)
            self.assertGreater((want - start).norm() / start.norm(), 0.1)
            for kind, got in (("peft", last), ("merged", merged), ("load_state", from_folder)):
                torch.testing.assert_close(got(self.x), want, rtol=1e-4, atol=1e-5, msg=lambda m: f"{kind}: {m}")

    def test_names_and_values_are_those_of_peft(self):
        """What peft saves has the same keys, shapes and configuration."""
        module = Net()
        out = self.trained(module, "--lora", "rank=2,alpha=6,target=emb,target=wide,target=conv", "--train", "head.*", "--freeze", "norm*")
        program.run("export", out, "--format", "peft", "-o", self.folder / "ours")
        config = LoraConfig(r=2, lora_alpha=6, target_modules=["emb", "wide", "conv"], modules_to_save=["head"])
        get_peft_model(copy.deepcopy(module), config).save_pretrained(self.folder / "theirs")
        shapes = [{n: t.shape for n, t in load_file(self.folder / side / "adapter_model.safetensors").items() if "norm." not in n} for side in ("ours", "theirs")]
        self.assertEqual(*shapes)
        ours, theirs = (json.loads((self.folder / side / "adapter_config.json").read_text()) for side in ("ours", "theirs"))
        for key in ours.keys() - {"target_modules", "modules_to_save", "fan_in_fan_out"}:
            self.assertEqual(ours[key], theirs[key], key)
        self.assertEqual(sorted(ours["target_modules"]), sorted(theirs["target_modules"]))

    def test_refusals_name_the_weight(self):
        for target, why in (
            ("emb.weight", '"emb.weight": it is tied to head.weight'),
            ("matrix", '"matrix": it adapts the weights of modules'),
            ("attn.in_proj_weight", '"attn.in_proj_weight": it adapts the weights of modules'),
            ("attn.out_proj.weight", '"attn.out_proj.weight": it adapts a MultiheadAttention only as a whole'),
            ("groups.weight", '"groups.weight": it is that of a convolution in groups'),
        ):
            with self.subTest(target):
                out = self.compiled(Shared(), "--no-build", "--lora", f"rank=2,target={target}")
                printed = program.run("export", out, "--format", "peft", "-o", self.folder / "a", code=2)
                self.assertIn("peft has no form for the adapter of " + why, printed)
                self.assertFalse((self.folder / "a").exists())
        out = self.trained(Net(), "--lora", "rank=2,target=head.weight", "--train", "head.bias")
        self.assertIn('"head.bias" has been trained beside the adapter', program.run("export", out, "--format", "peft", "-o", self.folder / "a", code=2))
        plain = self.compiled(Net(), "--no-build")
        self.assertIn("was compiled without --lora", program.run("export", plain, "--format", "peft", "-o", self.folder / "a", code=2))

    def test_load_state_tells_what_it_needs(self):
        out = self.compiled(Net(), "--no-build", "--lora", "rank=2,target=proj")
        program.run("export", out, "-o", self.folder / "a.safetensors")
        with self.assertRaisesRegex(gtc.StateError, "LoRA adapters, not the weights that they adapt: .*--merge-lora"):
            gtc.load_state(Net(), self.folder / "a.safetensors")
        with mock.patch.dict("os.environ", GTC="/no/gtc"), self.assertRaisesRegex(gtc.StateError, "--merge-lora.*needs the gtc binary"):
            gtc.load_state(Net(), out)


if __name__ == "__main__":
    unittest.main()
