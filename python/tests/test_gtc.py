"""Tests of the gtc package. From the top of the repository, where there is no PyTorch yet:

    tests/torch/run.sh python/tests/test_gtc.py
"""

import contextlib
import dataclasses
import io
import json
import os
import pathlib
import struct
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import gtc  # noqa: E402
from gtc import binary, onnxfile  # noqa: E402


class Net(nn.Module):
    """Batch normalisation, dropout, a tied weight, a buffer, and a layer that is not used."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.bn = nn.BatchNorm2d(4, momentum=0.3)
        self.drop = nn.Dropout(0.25)
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
        self.b.weight = self.a.weight
        self.register_buffer("shift", torch.randn(4))
        self.unused = nn.Linear(2, 2)

    def forward(self, x):
        x = self.drop(self.bn(self.conv(x)).relu()).mean((2, 3))
        return self.b(self.a(x).tanh()) + self.shift


class Exports(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def export(self, model, args, **options):
        """(report, ModelProto) of an export, checked by onnx."""
        path = os.path.join(self.folder.name, "m.onnx")
        report = gtc.export(model, args, path, quiet=True, **options)
        onnx.checker.check_model(path)
        return report, onnx.load(path)

    def nodes(self, proto, op):
        return [n for n in proto.graph.node if n.op_type == op]

    def record(self, proto):
        return {p.key: json.loads(p.value) for p in proto.metadata_props if p.key.startswith("gtc.")}

    def test_parameters_and_training_forms(self):
        for exporter in ("dynamo", "torchscript"):
            with self.subTest(exporter):
                model = Net().eval()
                before = {k: v.clone() for k, v in model.state_dict().items()}
                x, random = torch.randn(4, 3, 6, 6), torch.get_rng_state()
                report, proto = self.export(model, x, exporter=exporter)
                self.assertFalse(any(m.training for m in model.modules()), "the module's mode has changed")
                self.assertTrue(torch.equal(random, torch.get_rng_state()), "random numbers were used up")
                for k, v in model.state_dict().items():
                    self.assertTrue(torch.equal(v, before[k]), k)
                record, held = self.record(proto), {i.name: i for i in proto.graph.initializer}
                named = [n for n, _ in model.named_parameters() if not n.startswith("unused")]
                self.assertEqual(record["gtc.parameters"], named)
                self.assertEqual(record["gtc.tied"], {"b.weight": "a.weight"})
                self.assertEqual(record["gtc.buffers"], ["shift", "bn.running_mean", "bn.running_var"])
                self.assertEqual(record["gtc.unused"], ["unused.weight", "unused.bias"])
                for n in named + record["gtc.buffers"]:
                    np.testing.assert_array_equal(numpy_helper.to_array(held[n]), before[n].numpy())
                (bn,) = self.nodes(proto, "BatchNormalization")
                self.assertEqual(onnxfile.attribute(bn, "training_mode"), 1)
                self.assertAlmostEqual(onnxfile.attribute(bn, "momentum"), 0.7, places=6)
                (drop,) = self.nodes(proto, "Dropout")
                made = {o: n for n in proto.graph.node for o in n.output}
                value = {k: numpy_helper.to_array(onnxfile.attribute(made[k], "value")) for k in drop.input[1:]}
                self.assertEqual([float(value[drop.input[1]]), bool(value[drop.input[2]])], [0.25, True])
                self.assertEqual(proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param, "batch")
                self.assertEqual((report.inputs, report.lost), (["x"], []))

    def test_frozen_parts(self):
        model = Net().train()
        model.bn.eval()
        model.conv.weight.requires_grad_(False)
        report, proto = self.export(model, torch.randn(4, 3, 6, 6))
        self.assertEqual(report.frozen, ["conv.weight"])
        self.assertNotIn("conv.weight", report.parameters)
        (bn,) = self.nodes(proto, "BatchNormalization")
        self.assertEqual(onnxfile.attribute(bn, "training_mode", 0), 0)
        self.assertTrue(model.training and not model.bn.training)

    def test_loss_in_the_graph(self):
        class Margin(nn.Module):
            def __init__(self):
                super().__init__()
                self.scale = nn.Parameter(torch.tensor(2.0))

            def forward(self, out, want, weight):
                return ((out * self.scale - want) ** 2 * weight).mean()

        model = nn.Linear(3, 5)
        report, proto = self.export(model, torch.randn(4, 3), loss=nn.CrossEntropyLoss())
        self.assertEqual(([i.name for i in proto.graph.input], [o.name for o in proto.graph.output]), (["input", "target"], ["loss"]))
        self.assertEqual(self.record(proto)["gtc.loss"], "graph")
        targets = (torch.randn(4, 5), torch.ones(4, 1))
        report, proto = self.export(model, torch.randn(4, 3), loss=Margin(), targets=targets)
        self.assertEqual(report.parameters, ["weight", "bias", "loss.scale"])
        self.assertEqual(report.inputs, ["input", "target0", "target1"])
        report, proto = self.export(model, torch.randn(4, 3), loss="mse")
        self.assertEqual(self.record(proto)["gtc.loss"], "mse")
        with self.assertRaisesRegex(ValueError, "targets="):
            self.export(model, torch.randn(4, 3), loss=Margin())
        with self.assertRaisesRegex(ValueError, r"the loss must be one number, but has shape \[4, 5\]"):
            self.export(model, torch.randn(4, 3), loss=nn.MSELoss(reduction="none"))
        with self.assertRaisesRegex(ValueError, "exporter must be"):
            self.export(model, torch.randn(4, 3), exporter="onnx")

    def test_arguments_by_name_and_results_in_a_dataclass(self):
        @dataclasses.dataclass
        class Out(dict):
            def __init__(self, **values):
                super().__init__(values)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.model = nn.Linear(3, 3)  # a name that the wrapper has too

            def forward(self, x, mask=None, scale=1.0):
                y = self.model(x) * scale
                return Out(logits=y if mask is None else y * mask, past_key_values=None, hidden=(y, y + 1))

        report, proto = self.export(Model(), {"x": torch.randn(4, 3), "scale": 2.0, "mask": torch.ones(4, 3)})
        self.assertEqual(sorted(report.inputs), ["mask", "x"])
        self.assertEqual([o.name for o in proto.graph.output], ["logits", "hidden_0", "hidden_1"])
        self.assertEqual(report.parameters, ["model.weight", "model.bias"])

    def test_batch_that_cannot_be_open(self):
        class Fixed(nn.Module):
            def __init__(self):
                super().__init__()
                self.table = nn.Parameter(torch.randn(4, 3))

            def forward(self, x):
                return x + self.table

        report, proto = self.export(Fixed(), torch.randn(4, 3))
        self.assertEqual(proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value, 4)
        self.assertTrue(any("batch is fixed at 4" in n for n in report.notes), report.notes)
        report, proto = self.export(nn.Linear(3, 3), torch.randn(4, 3), dynamic_batch=False)
        self.assertEqual((proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value, report.notes), (4, []))

    def test_fallback(self):
        class Branches(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 3)

            def forward(self, x):
                return self.layer(x) if x.sum() > -1e9 else x  # torch.export refuses a branch on data

        report, proto = self.export(Branches(), torch.rand(4, 3))
        self.assertEqual(report.exporter, "torchscript")
        self.assertTrue(any("dynamo exporter failed" in n for n in report.notes), report.notes)
        self.assertEqual(report.parameters, ["layer.weight", "layer.bias"])
        with self.assertRaisesRegex(gtc.ExportError, "dynamo"):
            self.export(Branches(), torch.rand(4, 3), exporter="dynamo")

    def test_what_exporters_drop_is_spelled_out(self):
        """Label smoothing, detach and no_grad: the graph's gradient stops where the module's does, and its loss is PyTorch's."""

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a, self.b = nn.Linear(3, 4), nn.Linear(4, 4)

            def forward(self, x):
                y = self.a(x)
                with torch.no_grad():
                    z = self.b(y).exp()
                return y + z * (y - y.detach())

        x, target = torch.randn(4, 3), torch.tensor([0, 3, -100, 2])
        loss = nn.CrossEntropyLoss(weight=torch.rand(4), label_smoothing=0.2)
        for exporter in ("dynamo", "torchscript"):
            with self.subTest(exporter):
                model = Net()
                report, proto = self.export(model, x, loss=loss, targets=target, exporter=exporter)
                stops = [n for n in self.nodes(proto, "Identity") if "aten.detach" in onnxfile.recorded(n) or any(p.key == "gtc.detach" for p in n.metadata_props)]
                self.assertGreaterEqual(len(stops), 2)
                got = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x.numpy(), "target": target.numpy()})[0]
                self.assertAlmostEqual(float(got), float(loss(model(x), target)), places=5)
                self.assertEqual(report.lost, [])

    def test_smoothing_agrees_with_torch(self):
        for shape in ((5, 4), (2, 4, 3), (4,)):
            x = torch.randn(shape)
            target = torch.randint(0, 4, shape[:1] + shape[2:] if len(shape) > 1 else ())
            probabilities = torch.softmax(torch.randn(shape), 1 if len(shape) > 1 else 0)
            for t in (target, probabilities):
                for reduction in ("mean", "sum", "none"):
                    for weight in (None, torch.rand(4)):
                        options = dict(weight=weight, reduction=reduction, label_smoothing=0.3)
                        torch.testing.assert_close(gtc.graph.smoothed(x, t, **options), nn.functional.cross_entropy(x, t, **options))

    def test_buffers_that_move_are_told(self):
        model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(3, 4)))
        with torch.no_grad():  # it starts converged
            for b in model.buffers():
                b.copy_(nn.functional.normalize(torch.randn(b.shape), dim=0))
        report, _ = self.export(model, torch.randn(4, 3))
        self.assertEqual([line.split(":")[0] for line in report.lost], ["buffer 0.parametrizations.weight.0._u", "buffer 0.parametrizations.weight.0._v"])

    def test_statistics_of_instances_are_told(self):
        report, _ = self.export(nn.Sequential(nn.Conv1d(2, 4, 2), nn.InstanceNorm1d(4, affine=True, track_running_stats=True)), torch.randn(3, 2, 5))
        self.assertEqual([line.split(":")[0] for line in report.lost], ["buffer 1.running_mean", "buffer 1.running_var"])

    def test_own_gradients_are_told(self):
        class Reverse(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.view_as(x)

            @staticmethod
            def backward(ctx, dy):
                return -dy

        class Adverse(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.a, self.b = nn.Embedding(7, 4, scale_grad_by_freq=True), nn.Linear(4, 4), nn.Linear(4, 2)
                self.b.weight.register_hook(lambda g: 2 * g)
                self.a.register_full_backward_hook(lambda m, i, o: None)

            def forward(self, x):
                return self.b(Reverse.apply(torch.tanh(self.a(self.table(x)))))

        report, _ = self.export(Adverse(), torch.tensor([[1, 2], [3, 3]]))
        self.assertEqual([line.split(":")[0] for line in report.lost], ["gradient of Reverse", "parameter b.weight", "table", "a"])

    def test_probabilities_are_targets(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.a = nn.Linear(3, 4)

            def forward(self, x, target):
                return nn.functional.cross_entropy(input=self.a(x), target=target)

        x, target = torch.randn(5, 3), torch.softmax(torch.randn(5, 4), 1)
        for exporter in ("dynamo", "torchscript"):
            with self.subTest(exporter):
                model = Net()
                _, proto = self.export(model, (x[:2], target[:2]), exporter=exporter)
                got = onnx.reference.ReferenceEvaluator(proto).run(None, {"x": x.numpy(), "target": target.numpy()})[0]
                self.assertAlmostEqual(float(got), float(model(x, target)), places=5)

    def test_lost_parameters_are_told(self):
        path = os.path.join(self.folder.name, "m.onnx")
        with contextlib.redirect_stdout(io.StringIO()) as printed:

            class Frozen(nn.Linear):
                def forward(self, x):
                    return x @ torch.from_numpy(self.weight.data.numpy()) + self.weight.sum() * 0

            report = gtc.export(Frozen(3, 3), torch.randn(4, 3), path, exporter="torchscript")
        self.assertIn(report.path, printed.getvalue())
        proto = onnx.load(path)
        flat = gtc.graph.Flat(nn.Linear(3, 3), torch.randn(4, 3))
        del proto.graph.initializer[:]
        told = gtc.Report("x")
        onnxfile.finish(proto, flat, set(), told)
        self.assertEqual(len(told.lost), 3)  # the input, which nothing reads any more, is one
        self.assertIn("LOST: parameter weight", str(told))


class Names(unittest.TestCase):
    def test_rename_merges_and_makes_way(self):
        """Tied initializers become one; a value that has a parameter's name gets another; graphs inside nodes follow."""
        one = onnx.helper.make_tensor("one", onnx.TensorProto.FLOAT, [1], [1.0])
        two = onnx.helper.make_tensor("two", onnx.TensorProto.FLOAT, [1], [1.0])
        inner = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["two"], ["n"])], "g", [], [onnx.helper.make_tensor_value_info("n", 1, [1])])
        nodes = [
            onnx.helper.make_node("Add", ["one", "two"], ["w"]),
            onnx.helper.make_node("If", ["c"], ["i"], then_branch=inner, else_branch=inner),
            onnx.helper.make_node("Mul", ["w", "i"], ["y"]),
        ]
        graph = onnx.helper.make_graph(nodes, "m", [onnx.helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, [])], [onnx.helper.make_tensor_value_info("y", 1, [1])], [one, two])
        model = onnx.helper.make_model(graph)
        onnxfile.rename(model, {"one": "w", "two": "w"})
        onnx.checker.check_model(model)
        self.assertEqual([i.name for i in model.graph.initializer], ["w"])
        self.assertEqual(list(model.graph.node[0].input), ["w", "w"])
        self.assertEqual(list(model.graph.node[0].output), ["w_1"])
        self.assertEqual(list(model.graph.node[1].attribute[0].g.node[0].input), ["w"])

    def test_flags(self):
        flags = binary.arguments(dict(dp=2, sync_bn=True, tie=["a=b", "c=d"], dim={"seq": 8, "x": (4, 16), "s": ()}, value={"n": 3, "sizes": [2, 3]}, total_steps=None, shuffle=False, precision=torch.bfloat16, ignore_index=-1, transform=("x=identity",)))
        self.assertEqual(flags, ["--dp=2", "--sync-bn", "--tie=a=b", "--tie=c=d", "--dim=seq=8", "--dim=x=4x16", "--dim=s=scalar", "--value=n=3", "--value=sizes=2,3", "--shuffle=false", "--precision=bf16", "--ignore-index=-1", "--transform=x=identity"])

    def test_wrong_uses_are_told(self):
        with mock.patch.dict(os.environ, GTC="/no/such/gtc"), self.assertRaisesRegex(gtc.GtcError, "/no/such/gtc, which is not a program"):
            gtc.run("out")
        with self.assertRaisesRegex(ValueError, "model must be a torch.nn.Module, not a function"):
            gtc.export(lambda x: x, torch.ones(2), "never.onnx")


class Streams(unittest.TestCase):
    """The events of a run, of a stand-in for the program."""

    def program(self, script):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = pathlib.Path(folder.name, "gtc")
        path.write_text("#!/bin/sh\n" + script)
        path.chmod(0o755)
        patched = mock.patch.dict(os.environ, GTC=str(path))
        patched.start()
        self.addCleanup(patched.stop)
        return pathlib.Path(folder.name)

    def test_events(self):
        self.program("""[ "$*" = "run out --json" ] || exit 9\necho '{"event":"start"}'\necho a word\necho '{"event":"step","loss":null}'\n""")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            self.assertEqual(list(gtc.run("out", json=True)), [{"event": "start"}, {"event": "step", "loss": None}])
        self.assertEqual(printed.getvalue(), "a word\n")

    def test_failure_comes_after_the_events(self):
        self.program("""echo '{"event":"start"}'\nexit 3\n""")
        events = gtc.run("out", json=True)
        self.assertEqual(next(events), {"event": "start"})
        with self.assertRaisesRegex(gtc.GtcError, "gtc run out --json: exit code 3"):
            next(events)
        with self.assertRaisesRegex(gtc.GtcError, "gtc run out: exit code 3"), contextlib.redirect_stdout(io.StringIO()):
            gtc.run("out")

    def test_leaving_early_stops_the_run(self):
        folder = self.program("""trap 'sleep 0.2; echo last words; echo stopped > "${0%/*}/how"; exit 0' TERM\necho '{"event":"step"}'\nwhile :; do sleep 0.01; done\n""")
        with gtc.run("out", json=True) as events:
            for event in events:
                self.assertEqual(event, {"event": "step"})
                break
        self.assertIsNotNone(events.process.returncode)
        self.assertEqual((folder / "how").read_text(), "stopped\n")


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, t in tensors.items():
        raw = t.numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + data)


class States(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(2)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4))
        self.model[3].weight = self.model[2].weight
        self.state = {n: torch.randn(t.shape) for n, t in self.model.named_parameters()}
        self.state |= {n: torch.rand(4) for n in ("1.running_mean", "1.running_var")}

    def holds(self, model):
        for n, t in self.state.items():
            self.assertTrue(torch.equal(model.state_dict()[n], t), n)

    def test_file(self):
        write_safetensors(self.folder / "w.safetensors", self.state)
        names = gtc.load_state(self.model, self.folder / "w.safetensors")
        self.assertEqual(names, sorted(self.state))
        self.holds(self.model)

    def test_checkpoint_of_two_ranks(self):
        """A tensor in two parts, the optimizer's beside it, found through `latest`."""
        step = self.folder / "step-000007"
        step.mkdir()
        (self.folder / "latest").write_text("step-000007\n")
        parts = {"0.weight@0:2,0:3": self.state["0.weight"][:2].contiguous()}, {"0.weight@2:4,0:3": self.state["0.weight"][2:].contiguous()}
        whole = {n: t for n, t in self.state.items() if n != "0.weight"} | {"optim/m/0.bias": torch.zeros(4), "step": torch.zeros(1)}
        write_safetensors(step / "shard-00000-of-00002.safetensors", parts[0] | whole)
        write_safetensors(step / "shard-00001-of-00002.safetensors", parts[1])
        tensors = {n: {"dtype": "f32", "shape": list(t.shape), "parts": [{"shard": 0, "offset": [0] * t.dim(), "shape": list(t.shape)}]} for n, t in whole.items()}
        tensors["0.weight"] = {"dtype": "f32", "shape": [4, 3], "parts": [{"shard": r, "offset": [2 * r, 0], "shape": [2, 3]} for r in (0, 1)]}
        index = {"format": 1, "shards": [{"file": f"shard-0000{r}-of-00002.safetensors"} for r in (0, 1)], "tensors": tensors}
        (step / "index.json").write_text(json.dumps({"crc32c": "00000000", "index": index}))
        for path in (self.folder, step):
            model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 4), nn.Linear(4, 4))
            model[3].weight = model[2].weight
            gtc.load_state(model, path)
            self.holds(model)

    def test_onnx_file(self):
        path = str(self.folder / "m.onnx")
        gtc.export(self.model, torch.randn(5, 3), path, quiet=True)
        with torch.no_grad():
            for n, t in self.model.state_dict().items():
                if n in self.state:
                    self.state[n] = t.clone()
            for p in self.model.parameters():
                p.zero_()
        gtc.load_state(self.model, path)
        self.holds(self.model)

    def test_what_does_not_fit(self):
        before = {n: t.clone() for n, t in self.model.state_dict().items()}
        path = self.folder / "w.safetensors"
        state = dict(self.state)
        state["val_3"] = state.pop("0.weight")
        state["0.bias"] = torch.zeros(5)
        write_safetensors(path, state)
        with self.assertRaises(gtc.StateError) as told:
            gtc.load_state(self.model, path)
        for part in ("no tensor for 1 of the module's parameters: 0.weight", "no parameter or buffer for 1 tensor: val_3", r"0.bias: the checkpoint has [5], but the module has [4]"):
            self.assertIn(part, str(told.exception))
        for n, t in self.model.state_dict().items():
            self.assertTrue(torch.equal(t, before[n]), f"{n} was changed")
        with self.assertRaisesRegex(gtc.StateError, "other shapes"):
            gtc.load_state(self.model, path, strict=False)
        for text, why in (b"", "it has 0 bytes"), (b"12345678", "it ends at byte 8"), (struct.pack("<Q", 99) + b"{}", "it ends at byte 10"):
            path.write_bytes(text)
            with self.assertRaisesRegex(gtc.StateError, "damaged .*" + why):
                gtc.load_state(self.model, path)
        with self.assertRaisesRegex(gtc.StateError, "does not exist"):
            gtc.load_state(self.model, self.folder / "none")
        with self.assertRaisesRegex(gtc.StateError, "neither"):
            gtc.load_state(self.model, self.folder)


class Training(unittest.TestCase):
    """With the gtc binary: the module is compiled and trained, and what comes back is what PyTorch makes of the same steps."""

    def test_round_trip(self):
        try:
            binary.binary()
        except gtc.GtcError as fault:
            self.skipTest(str(fault))
        torch.manual_seed(3)
        model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
        x, y = torch.randn(16, 4), torch.randint(0, 3, (16,))
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
            out = os.path.join(folder, "out")
            np.savez(os.path.join(folder, "d.npz"), input=x.numpy(), target=y.numpy())
            gtc.compile(model, x, out, loss="cross_entropy", batch=16, optimizer="sgd", lr=0.1, momentum=0.0)
            gtc.run(out, data=os.path.join(folder, "d.npz"), steps=5, save_every=5)
            trained = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
            gtc.load_state(trained, out)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(5):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
        for n, t in model.state_dict().items():
            if n != "1.num_batches_tracked":
                torch.testing.assert_close(trained.state_dict()[n], t, rtol=1e-4, atol=1e-5, msg=n)


if __name__ == "__main__":
    unittest.main()
