"""Writes docs/tour.onnx, the model that docs/tour.md follows:  tests/torch/run.sh export_tour.py"""

import onnx
import torch
from torch import nn

from export_examples import relative_traces
from models import ROOT


class Tour(nn.Module):
    """Six numbers in, scores of three classes out."""

    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        h = self.hidden(x)
        h = torch.relu(h)
        return self.out(h)


def main():
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2)
    program = torch.onnx.export(
        Tour(), (torch.zeros(2, 6),), dynamo=True, optimize=False, opset_version=20, input_names=["x"], output_names=["y"],
        dynamic_shapes={"x": {0: batch}}, verbose=False)
    model = program.model_proto
    relative_traces(model)
    onnx.checker.check_model(model)
    path = ROOT / "docs" / "tour.onnx"
    onnx.save(model, path)
    print(path)


if __name__ == "__main__":
    main()
