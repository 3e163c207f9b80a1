"""What docs/tour.npz is made from, with the weights that docs/tour.onnx holds:

    tests/torch/run.sh make_reference.py tests/torch/tour_job.py docs/tour.npz
"""

import onnx
import torch
from onnx import numpy_helper
from torch.nn import functional as F

from export_tour import Tour
from models import ROOT

held = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in onnx.load(ROOT / "docs" / "tour.onnx").graph.initializer}
model = Tour()
model.load_state_dict({name: held[name] for name, _ in model.named_parameters()})
torch.manual_seed(1)
inputs, target, loss = (torch.randn(8, 6),), torch.randint(0, 3, (8,)), F.cross_entropy
