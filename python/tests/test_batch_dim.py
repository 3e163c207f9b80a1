"""Arguments whose samples do not lie along the first dimension."""

import os
import pathlib
import sys
import tempfile
import unittest

import numpy as np
import onnx
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import gtc  # noqa: E402
import program  # noqa: E402


class Steps(nn.Module):
    """[T,B,C] and first states [1,B,H]: [T,B,3]"""

    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.GRU(3, 4), nn.Linear(4, 3)

    def forward(self, x, h=None):
        return self.head(self.rnn(x, h)[0])


class Exports(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(1)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def open_dims(self, path):
        return {i.name: [d.dim_param or d.dim_value for d in i.type.tensor_type.shape.dim] for i in onnx.load(path).graph.input}

    def test_open_dimension(self):
        path = os.path.join(self.folder, "m.onnx")
        x, h = torch.randn(5, 4, 3), torch.randn(1, 4, 4)
        for exporter in ("dynamo", "torchscript"):
            for dim in (1, {"x": 1, "h": 1}, -2):
                with self.subTest(exporter=exporter, dim=dim):
                    report = gtc.export(Steps(), (x, h), path, exporter=exporter, batch_dim=dim, quiet=True)
                    self.assertEqual(self.open_dims(path), {"x": [5, "batch", 3], "h": [1, "batch", 4]}, report.notes)
                    self.assertEqual(report.batch_dims, {"x": 1, "h": 1})

    def test_refused(self):
        for dim, words in ((3, "no dimension 3"), ({"z": 1}, "the model has no input z")):
            with self.assertRaisesRegex(ValueError, words):
                gtc.export(Steps(), torch.randn(5, 4, 3), os.path.join(self.folder, "m.onnx"), batch_dim=dim, quiet=True)

    def test_training(self):
        """Two updates on six samples, in batches of four and two, against PyTorch in float64; samples along dim 1 or in front."""
        model, x, t = Steps(), torch.randn(5, 6, 3), torch.randint(0, 3, (5, 6))
        wide = Steps().double()
        wide.load_state_dict(model.state_dict())
        sgd = torch.optim.SGD(wide.parameters(), lr=0.1)
        for part in (slice(0, 4), slice(4, 6)):
            sgd.zero_grad()
            nn.functional.cross_entropy(wide(x[:, part].double()).reshape(-1, 3), t[:, part].reshape(-1)).backward()
            sgd.step()
        program.gtc()
        out = os.path.join(self.folder, "out")
        gtc.compile(model, x[:, :4].contiguous(), out, loss="cross_entropy", batch_dim=1, batch=4, optimizer="sgd", lr=0.1, threads=1)
        for name, arrays in (("time", {"x": x, "target": t}), ("front", {"x": x.transpose(0, 1), "target": t.T})):
            with self.subTest(name):
                np.savez(os.path.join(self.folder, "data.npz"), **{k: v.numpy() for k, v in arrays.items()})
                saved = os.path.join(self.folder, name)
                gtc.run(out, data=os.path.join(self.folder, "data.npz"), epochs=1, shuffle=False, checkpoint_dir=saved)
                trained = Steps()
                gtc.load_state(trained, saved)
                for key, value in wide.state_dict().items():
                    torch.testing.assert_close(trained.state_dict()[key].double(), value, rtol=0, atol=1e-5)


if __name__ == "__main__":
    unittest.main()
