"""What gtc's commands promise, tried as a user does, with PyTorch as the judge where there are numbers."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time
import unittest

import numpy as np
import program
import torch
from torch import nn

import gtc
from gtc import binary

BATCH, SAMPLES, LR = 4, 10, 0.1


class Noisy(nn.Module):
    """A model with dropout."""

    def __init__(self):
        super().__init__()
        self.a, self.drop, self.b = nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)

    def forward(self, x):
        return self.b(self.drop(torch.relu(self.a(x))))


class Meeting(nn.Module):
    """A model whose samples meet in a softmax over the batch."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 8)

    def forward(self, x):
        h = self.layer(x)
        return torch.softmax(h @ h.T, 0) @ h


class WithLoss(nn.Module):
    """A model that computes its own loss, over the targets that are not -100, and gives its logits too."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


class Commands(unittest.TestCase):
    """One model in several compiled forms, made when first asked for."""

    @classmethod
    def setUpClass(cls):
        program.gtc()
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder, cls.made = pathlib.Path(folder.name), {}
        torch.manual_seed(11)
        cls.models = {"plain": nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), "noisy": Noisy(), "meeting": Meeting()}
        cls.x, cls.y = torch.randn(SAMPLES, 4), torch.randint(0, 3, (SAMPLES,))
        cls.data = cls.folder / "d.npz"
        np.savez(cls.data, input=cls.x.numpy(), x=cls.x.numpy(), target=cls.y.numpy())
        for name, model in cls.models.items():
            gtc.export(model, cls.x[:BATCH], cls.folder / f"{name}.onnx", quiet=True)

    def compiled(self, model="plain", *flags, batch=BATCH, loss="cross_entropy"):
        """The folder of one model with flags; not to be changed."""
        key = (model, flags, batch, loss)
        if key not in self.made:
            out = self.folder / f"out{len(self.made)}"
            program.run("compile", self.folder / f"{model}.onnx", "-o", out, "--batch", batch, "--loss", loss, "--optimizer", "sgd", "--lr", LR, *flags)
            self.made[key] = out
        return self.made[key]

    def scratch(self, name="c"):
        return pathlib.Path(tempfile.mkdtemp(dir=self.folder), name)

    def events(self, out, kind, **flags):
        """The events of a kind."""
        flags = {"data": self.data, "log_every": 1, "checkpoint_dir": "none", "json": True} | flags
        return [e for e in gtc.run(out, **flags) if e["event"] == kind]

    def losses(self, out, **flags):
        return [e["loss"] for e in self.events(out, "step", **flags)]


class Runs(Commands):
    def test_no_shuffling_and_the_norm_of_gradients(self):
        """shuffle=False is the order of the data; the norm is that of clip_grad_norm_, in JSON lines and in the progress line."""
        model, want = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), []
        model.load_state_dict(self.models["plain"].state_dict())
        optimizer = torch.optim.SGD(model.parameters(), lr=LR)
        for _ in range(2):
            for first in range(0, SAMPLES, BATCH):
                optimizer.zero_grad()
                loss = nn.functional.cross_entropy(model(self.x[first : first + BATCH]), self.y[first : first + BATCH])
                loss.backward()
                want.append((loss.item(), nn.utils.clip_grad_norm_(model.parameters(), 1e9).item()))
                optimizer.step()
        for flags in ((), ("--dp", 2)):
            with self.subTest(flags):
                out = self.compiled("plain", *flags)
                got = [(e["loss"], e["grad_norm"]) for e in self.events(out, "step", epochs=2, shuffle=False)]
                np.testing.assert_allclose(got, want, rtol=1e-5)
                printed = program.run("run", out, "--data", self.data, "--epochs", 2, "--shuffle=false", "--log-every", 1, "--checkpoint-dir", "none")
                np.testing.assert_allclose([float(n) for n in re.findall(r" grad (\S+)", printed)], [n for _, n in want], rtol=1e-2)  # of 3 digits
                self.assertFalse(np.allclose(self.losses(out, epochs=2), [loss for loss, _ in want], rtol=1e-3))

    def test_every_false_reaches_the_program(self):
        """Each flag that is on or off takes False from Python, for runs and for compiling."""
        commands = {
            "run": [self.compiled(), "--data", self.data, "--steps", 1, "--checkpoint-dir", "none"],
            "compile": [self.folder / "plain.onnx", "--batch", BATCH, "--loss", "cross_entropy", "--no-build", "-o"],
        }
        for command, given in commands.items():
            switches = re.findall(r"^ +--([a-z-]+)  +[^ ]", program.run(command, "--help"), re.M)  # those with a value have its name beside
            self.assertIn({"run": "shuffle", "compile": "sync-bn"}[command], switches)
            for name in switches:
                if name == "no-build":
                    continue
                with self.subTest(f"{command} --{name}"):
                    program.run(command, *given, *([self.scratch()] if command == "compile" else []), *binary.arguments({name: False}))

    def test_events(self):
        kinds = [e["event"] for e in gtc.run(self.compiled(), data=self.data, eval_data=self.data, steps=2, log_every=1, checkpoint_dir=self.scratch(), json=True)]
        self.assertEqual(kinds, ["start", "step", "step", "eval", "save", "end"])

    def test_time_of_a_step(self):
        """Evaluations and the start are no part of a step's time: here an evaluation has a thousand times a step's samples."""
        large = self.folder / "large.npz"
        np.savez(large, input=np.zeros((4000, 4), np.float32), target=np.zeros(4000, np.int64))
        kept = list(gtc.run(self.compiled(), data=self.data, eval_data=large, eval_every=1, steps=8, checkpoint_dir="none", json=True))
        evaluations = [e["seconds"] for e in kept if e["event"] == "eval"]
        self.assertGreaterEqual(len(evaluations), 8)
        self.assertLess(kept[-1]["step_seconds"], min(evaluations) / 4, kept)
        printed = program.run("run", self.compiled(), "--data", self.data, "--eval-data", large, "--eval-every", 1, "--steps", 8, "--checkpoint-dir", "none")
        self.assertLess(float(re.search(r"([\d.]+) ms each", printed)[1]) / 1e3, min(evaluations) / 4, printed)

    def test_seeds(self):
        """A seed decides dropout too; a resumed run goes on with that of its checkpoint, and says when another is asked for."""
        out, kept = self.compiled("noisy"), self.scratch()
        of = lambda seed, **more: self.losses(out, steps=4, shuffle=False, seed=seed, **more)
        whole = of(1)
        self.assertEqual(of(1), whole)
        self.assertEqual(len({tuple(of(s)) for s in (0, 1, 2)}), 3)
        first = self.losses(out, steps=2, shuffle=False, seed=1, checkpoint_dir=kept)
        self.assertEqual(first + self.losses(out, steps=4, shuffle=False, resume=True, checkpoint_dir=kept), whole)
        self.assertIn("--seed 5 is not used: the checkpoint was trained with --seed 1",
                      program.run("run", out, "--data", self.data, "--steps", 5, "--shuffle=false", "--resume", "--seed", 5, "--checkpoint-dir", kept))
        gtc.load_state(Noisy(), kept)  # what the run keeps of its own is not the module's

    def test_lock(self):
        """The second of two runs on one folder of checkpoints is refused, and told which is the first."""
        out, kept = self.compiled(), self.scratch()
        first = subprocess.Popen([program.gtc(), "run", str(out), "--data", str(self.data), "--steps", "1000000000", "--log-every", "1", "--checkpoint-dir", str(kept)],
                                 stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        try:
            self.assertIn("step", first.stdout.readline())
            told = program.run("run", out, "--data", self.data, "--steps", 1, "--checkpoint-dir", kept, code=2)
            self.assertRegex(told, rf"another run saves its checkpoints in {kept}, process \d+ on ")
            os.kill(int(re.search(r"process (\d+)", told)[1]), 0)  # it is one that lives
        finally:
            first.send_signal(signal.SIGTERM)
            first.communicate()
        program.run("run", out, "--data", self.data, "--steps", 1, "--checkpoint-dir", kept)

    def test_the_cause_comes_first_and_once(self):
        """One rank of two finds an error in its own samples: the first line says it, and no other repeats it."""
        bad = self.folder / "bad.npz"
        target = self.y.numpy().copy()
        target[3] = 7  # of the second rank's half
        np.savez(bad, input=self.x.numpy(), target=target)
        done = subprocess.run([program.gtc(), "run", str(self.compiled("plain", "--dp", 2)), "--data", str(bad), "--steps", "1", "--shuffle=false", "--checkpoint-dir", "none", "--json"],
                              capture_output=True, text=True)
        lines = done.stderr.splitlines()
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(lines[0], r'sample 3 of --data: .*"target" has a value out of range, 7')
        self.assertEqual(done.stderr.count("out of range"), 1, done.stderr)
        self.assertLess(len(lines), 5, done.stderr)


class Metrics(Commands):
    def test_accuracy_beside_a_loss_in_the_graph(self):
        """The share of right ones among the targets that count, whatever the layout and the size of the last batch."""
        model, labels = WithLoss(), self.y.clone()
        labels[[1, 6]] = -100
        gtc.export(model, (self.x[:BATCH], labels[:BATCH]), self.folder / "inside.onnx", quiet=True)
        data = self.folder / "inside.npz"
        np.savez(data, x=self.x.numpy(), labels=labels.numpy())
        with torch.no_grad():
            want = (model(self.x, labels)["logits"].argmax(1) == labels).sum().item() / (labels != -100).sum().item()
            loss = model(self.x, labels)["loss"].item()
        for flags in (), ("--dp", 2), ("--microbatches", 2), ("--pp", 2, "--microbatches", 2), ("--precision", "bf16"), ("--dp", 2, "--zero", 3):
            with self.subTest(flags):
                (got,) = self.events(self.compiled("inside", *flags, loss="graph"), "eval", data=None, eval_data=data, eval_only=True)
                self.assertEqual((got["samples"], got["unseen"]), (SAMPLES, 0))
                self.assertAlmostEqual(got["accuracy"], want, places=6)
                self.assertLess(abs(got["loss"] - loss) / loss, 2e-2 if "bf16" in flags else 1e-5)


class Beginnings(Commands):
    def trained(self, out, steps):
        kept = self.scratch()
        program.run("run", out, "--data", self.data, "--steps", steps, "--shuffle=false", "--checkpoint-dir", kept)
        return kept

    def test_only_evaluating_without_checkpoints(self):
        with torch.no_grad():
            want = nn.functional.cross_entropy(self.models["plain"](self.x), self.y).item()
        (got,) = self.events(self.compiled(), "eval", data=None, eval_data=self.data, eval_only=True)
        self.assertAlmostEqual(got["loss"], want, places=5)
        self.assertEqual((got["samples"], got["unseen"]), (SAMPLES, 0))

    def test_init_from_in_other_layouts_and_precisions(self):
        """Weights of one layout begin another's run: its first loss is that of the module with these weights."""
        kept = self.trained(self.compiled(), 3)
        module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        gtc.load_state(module, kept)
        with torch.no_grad():
            want = nn.functional.cross_entropy(module(self.x[:6]), self.y[:6]).item()
        file = self.scratch("w.safetensors")
        program.run("export", kept, "-o", file)
        for flags, tolerance in (("--dp", 2), 1e-5), (("--tp", 2), 1e-5), (("--pp", 2, "--microbatches", 2), 1e-5), (("--dp", 2, "--zero", 3), 1e-5), (("--precision", "bf16"), 2e-2), (("--precision", "fp16", "--dp", 2), 2e-3):
            for source in kept, file:
                with self.subTest(flags=flags, source=source.suffix):
                    out = self.compiled("plain", *flags, batch=6)
                    done = subprocess.run([program.gtc(), "run", str(out), "--data", str(self.data), "--steps", "1", "--log-every", "1", "--shuffle=false", "--checkpoint-dir", "none", "--init-from", str(source), "--json"],
                                          capture_output=True, text=True, check=True)
                    step = next(e for e in map(json.loads, done.stdout.splitlines()) if e["event"] == "step")
                    self.assertEqual(step["step"], 1)
                    self.assertLess(abs(step["loss"] - want) / want, tolerance)
                    self.assertNotIn("this program does not have", done.stderr)
        self.assertIn("plain.onnx is a model", program.run("run", self.compiled(), "--data", self.data, "--init-from", self.folder / "plain.onnx", code=2))

    def test_reset_data(self):
        """Resuming with another batch names the flag that allows it; with it, weights and step go on and the data begin anew."""
        kept, other = self.trained(self.compiled(), 3), self.compiled("plain", batch=5)
        module = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))
        gtc.load_state(module, kept)
        with torch.no_grad():
            want = nn.functional.cross_entropy(module(self.x[:5]), self.y[:5]).item()
        self.assertIn("--reset-data", program.run("run", other, "--data", self.data, f"--resume={kept}", "--steps", 4, code=2))
        (step,) = self.events(other, "step", resume=kept, reset_data=True, steps=4, shuffle=False, checkpoint_dir=self.scratch())
        self.assertEqual(step["step"], 4)
        self.assertAlmostEqual(step["loss"], want, places=5)


class Outputs(Commands):
    def test_any_number_of_samples(self):
        for model, names in ("plain", ["output"]), ("noisy", ["output"]):
            for flags, loss in (("--forward",), "cross_entropy"), ((), "none"), (("--dp", 2), "none"):
                for count in (1, 3, 4, 9):
                    with self.subTest(model=model, flags=flags, count=count):
                        got = self.outputs(self.compiled(model, *flags, loss=loss), count)
                        self.assertEqual(list(got), names)
                        with torch.no_grad():
                            want = self.models[model].eval()(self.x[:count]).numpy()
                        np.testing.assert_allclose(got["output"], want, rtol=1e-5, atol=1e-6)

    def outputs(self, out, count, code=0):
        samples, file = self.scratch("in.npz"), self.scratch("out.npz")
        np.savez(samples, input=self.x.numpy()[:count], x=self.x.numpy()[:count])
        told = program.run("run", out, "--dump-forward", file, "--inputs", samples, code=code)
        return dict(np.load(file)) if code == 0 else told

    def test_samples_that_meet(self):
        """Each full batch is what the module makes of it; samples that do not fill one are refused, with the node and what would do."""
        for flags, loss in (("--forward",), "mse"), ((), "none"), (("--dp", 2), "none"):
            out = self.compiled("meeting", *flags, loss=loss)
            for count in (4, 8):
                with self.subTest(flags=flags, count=count), torch.no_grad():
                    want = torch.cat([self.models["meeting"](part) for part in self.x[:count].split(BATCH)]).numpy()
                    np.testing.assert_allclose(self.outputs(out, count)["output"], want, rtol=1e-5, atol=1e-6)
            self.assertRegex(self.outputs(out, 10, code=2), r"10 samples, but the program takes 4 at a time.*Softmax.*give 8 of them, or 12")
            self.assertRegex(self.outputs(out, 3, code=2), r"(?m)3 samples.*Softmax.*give 4$")


class Checks(Commands):
    def reference(self, **arrays):
        file = self.scratch("ref.npz")
        np.savez(file, in0=self.x.numpy(), **arrays)
        return file

    def check(self, *args, code):
        return program.run("check", self.folder / "plain.onnx", *args, code=code)

    def test_nothing_but_outputs(self):
        """--loss none compares outputs, interpreted as well as run."""
        with torch.no_grad():
            ref = self.reference(out0=self.models["plain"](self.x).numpy())
        for flags in ("--simulate",), ("--simulate", "--dp", 2), ("--simulate", "--tp", 2), (), ("--dp", 2):
            with self.subTest(flags):
                self.assertIn("all within tolerance", self.check("--reference", ref, "--loss", "none", *flags, code=0))

    def test_what_is_no_number(self):
        """NaN is NaN in the table and the string "NaN" in JSON, and never within the tolerance."""
        wrong = self.reference(out0=np.full((SAMPLES, 3), np.nan, np.float32), target=self.y.numpy(), loss=np.float64("nan"))
        for flags in ("--simulate",), ():
            with self.subTest(flags):
                self.assertRegex(self.check("--reference", wrong, *flags, code=1), r"out0 +NaN  FAIL\nloss +NaN  FAIL")
                told = json.loads(self.check("--reference", wrong, "--json", *flags, code=1))
                self.assertEqual((told["ok"], told["out"], told["loss"]), (False, "NaN", "NaN"))
        other = self.reference(out0=np.zeros((SAMPLES, 2), np.float32))
        self.assertEqual(json.loads(self.check("--reference", other, "--json", "--simulate", "--loss", "none", code=1))["out"], "other size")

    def test_warnings_of_the_import(self):
        class Folded(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.n = nn.Conv1d(4, 4, 1), nn.BatchNorm1d(4)

            def forward(self, x):
                return self.n(self.a(x[:, :, None]))

        path = self.folder / "folded.onnx"
        torch.onnx.export(Folded().train(), (self.x,), path, dynamo=True, verbose=False)
        ref = self.reference(out0=np.zeros((SAMPLES, 4, 1), np.float32))
        printed = program.run("check", path, "--reference", ref, "--loss", "none", "--simulate", code=1)
        self.assertIn("warning", printed)
        told = [json.loads(line) for line in program.run("check", path, "--reference", ref, "--loss", "none", "--simulate", "--json", code=1).splitlines() if line.startswith("{")]
        self.assertTrue(any("folded" in w for w in told[0]["warnings"]), told)

    def test_a_cuda_path_without_a_compiler(self):
        empty, ref = self.scratch(), self.reference(out0=np.zeros((SAMPLES, 3), np.float32))
        empty.mkdir()
        for path in empty, self.folder / "nosuch":
            for command in ("compile", "-o", self.scratch()), ("check", "--reference", ref):
                told = program.run(command[0], self.folder / "plain.onnx", *command[1:], "--batch", BATCH, "--loss", "none", "--target", "cuda", "--cuda-path", path, code=2)
                self.assertIn(f"--cuda-path {path}: neither NVRTC (libnvrtc.so) nor nvcc is in it", told)


if __name__ == "__main__":
    unittest.main()
