"""What example inputs become: aliases, inputs that nothing reads, results of several tensors, failures in one sentence."""

import os
import pathlib
import sys
import tempfile
import unittest

import onnx
import onnx.reference
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import gtc  # noqa: E402

EXPORTERS = ("dynamo", "torchscript")


class Exports(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "m.onnx")

    def export(self, model, args, **options):
        return gtc.export(model, args, self.path, quiet=True, **options)

    def evaluate(self, **inputs):
        return onnx.reference.ReferenceEvaluator(onnx.load(self.path)).run(None, {n: t.numpy() for n, t in inputs.items()})


class Two(nn.Module):
    """Reads both of its inputs, or lists of them."""

    def forward(self, a, b):
        if not torch.is_tensor(a):
            a, b = a[0] + a[1], b["c"]
        return a * 2 + b * 3


class Aliases(Exports):
    def test_inputs_that_share_memory_stay_apart(self):
        base = torch.randn(6, 4)
        for exporter in EXPORTERS:
            for name, a, b in (("the same", base, base), ("views", base[:4], base[:4].view(4, 4)), ("parts", base[:4], base[2:])):
                with self.subTest(exporter=exporter, case=name):
                    report = self.export(Two(), (a, b), exporter=exporter)
                    self.assertEqual(report.lost, [])
                    self.assertTrue(any("b lies in the memory of a" in n for n in report.notes), report.notes)
                    x, y = torch.randn(a.shape), torch.randn(a.shape)
                    torch.testing.assert_close(torch.from_numpy(self.evaluate(a=x, b=y)[0]), 2 * x + 3 * y)

    def test_one_tensor_twice_in_nested_arguments(self):
        t = torch.randn(4, 3)
        for exporter in EXPORTERS:
            with self.subTest(exporter):
                report = self.export(Two(), {"a": [t, t], "b": {"c": t}}, exporter=exporter)
                self.assertEqual(report.lost, [])
                p, q, r = (torch.randn(4, 3) for _ in range(3))
                got = self.evaluate(**dict(zip(report.inputs, (p, q, r))))[0]
                torch.testing.assert_close(torch.from_numpy(got), 2 * (p + q) + 3 * r)

    def test_an_input_that_nothing_reads_is_lost(self):
        class Half(nn.Module):
            def forward(self, x, mask):
                return x * 2 + torch.zeros(mask.shape[0], 1)

        for exporter in EXPORTERS:
            with self.subTest(exporter):
                report = self.export(Half(), (torch.randn(4, 3), torch.ones(4, 3)), exporter=exporter)
                self.assertEqual(report.lost, ["input mask: nothing in the file reads it"])


class Results(Exports):
    def test_a_custom_loss_sees_all_that_the_module_returns(self):
        class Heads(nn.Module):
            def __init__(self, kind):
                super().__init__()
                self.kind, self.a, self.b = kind, nn.Linear(3, 2), nn.Linear(3, 1)

            def forward(self, x):
                a, b = self.a(x), self.b(x)
                return {"a": a, "b": b} if self.kind is dict else (a, b)

        def loss(out, t):
            a, b = (out["a"], out["b"]) if isinstance(out, dict) else out
            return nn.functional.cross_entropy(a, t) + (b**2).mean()

        x, t = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
        for exporter in EXPORTERS:
            for kind in (tuple, dict):
                with self.subTest(exporter=exporter, kind=kind):
                    model = Heads(kind)
                    report = self.export(model, x, loss=loss, targets=t, exporter=exporter)
                    self.assertEqual((report.loss, report.lost, report.unused), ("graph", [], []))
                    self.assertAlmostEqual(float(self.evaluate(x=x, target=t)[0]), loss(model(x), t).item(), places=5)
        model = Heads(tuple)  # PyTorch's own take the first result
        for own in (nn.CrossEntropyLoss(), nn.functional.cross_entropy):
            self.export(model, x, loss=own, targets=t)
            self.assertAlmostEqual(float(self.evaluate(x=x, target=t)[0]), nn.functional.cross_entropy(model(x)[0], t).item(), places=5)

    def test_a_first_result_of_one_number_is_the_loss(self):
        class WithLoss(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(3, 2)

            def forward(self, x, labels):
                logits = self.layer(x)
                return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

        report = self.export(WithLoss(), (torch.randn(4, 3), torch.tensor([0, 1, 1, 0])))
        self.assertEqual(report.loss, "graph")
        self.assertTrue(any("loss, is one number" in n for n in report.notes), report.notes)
        self.assertEqual(self.export(nn.Linear(3, 2), torch.randn(4, 3)).loss, "")


class Roles(Exports):
    def test_padding_rows_are_recorded(self):
        class Bag(nn.Module):
            def __init__(self):
                super().__init__()
                self.table, self.plain = nn.Embedding(6, 3, padding_idx=-1), nn.Embedding(6, 3)

            def forward(self, ids):
                return self.table(ids) + self.plain(ids)

        for exporter in EXPORTERS:
            with self.subTest(exporter):
                report = self.export(Bag(), torch.randint(0, 6, (4, 2)), exporter=exporter)
                self.assertEqual(report.padding, {"table.weight": 5})
                self.assertIn("padding: row 5 of table.weight", str(report))


class Spellings(Exports):
    def test_differences(self):
        class Steps(nn.Module):
            def forward(self, x):
                return x.diff(), torch.diff(x, 2, 0), torch.diff(x, dim=1, prepend=x[:, :1], append=x)

        x = torch.randn(4, 3)
        for exporter in EXPORTERS:
            with self.subTest(exporter):
                report = self.export(Steps(), x, exporter=exporter, dynamic_batch=False)
                for got, want in zip(self.evaluate(**{report.inputs[0]: x}), Steps()(x), strict=True):
                    torch.testing.assert_close(torch.from_numpy(got), want)


class Failures(Exports):
    def failure(self, model, args, exporter="auto"):
        with self.assertRaises(gtc.ExportError) as told:
            self.export(model, args, exporter=exporter)
        text = str(told.exception)
        self.assertLess(len(text), 1000, "a sentence, no page")
        self.assertNotIn("graph(", text)
        return text

    def test_packed_sequences(self):
        class Packed(nn.Module):
            def __init__(self):
                super().__init__()
                self.rnn = nn.LSTM(3, 4, batch_first=True)

            def forward(self, x, lengths):
                packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
                return self.rnn(packed)[0].data  # as a packed sequence, which TorchScript cannot write either

        for exporter in (*EXPORTERS, "auto"):
            with self.subTest(exporter):
                self.assertIn("run the recurrent layer over the padded batch", self.failure(Packed(), (torch.randn(4, 5, 3), torch.tensor([5, 3, 2, 1])), exporter))

    def test_decisions_on_data(self):
        class Branch(nn.Module):
            def forward(self, x):
                return x * 2 if x.sum() > 0 else x

        self.assertIn("torch.where", self.failure(Branch(), torch.rand(4, 3), "dynamo"))


if __name__ == "__main__":
    unittest.main()
