"""Exports a model of the benchmark table that is no GPT: export.py mlp8x512|resnet50 OUT.onnx

Matrices and filters are left out of the file, as external data that nobody writes: gtc compile --abstract-weights takes it,
gtc run --random-weights stands in for them, and the kit stays small. resnet50 needs torchvision.
"""

import sys

import onnx
import torch
from torch import nn


def mlp8x512():
    layers = []
    for i in range(8):
        layers += [nn.Linear(512, 512)] + ([nn.ReLU()] if i < 7 else [])
    return nn.Sequential(*layers), torch.randn(128, 512)


def resnet50():
    import torchvision

    return torchvision.models.resnet50(weights=None), torch.randn(2, 3, 224, 224)  # the batch is open


def main():
    name, path = sys.argv[1:]
    torch.manual_seed(0)
    model, x = {"mlp8x512": mlp8x512, "resnet50": resnet50}[name]()
    model.train()
    torch.onnx.export(model, (x,), path, dynamo=False, training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False,
                      opset_version=17, input_names=["x"], output_names=["logits"], dynamic_axes={"x": {0: "batch"}, "logits": {0: "batch"}})
    m = onnx.load(path)
    at = 0
    for t in m.graph.initializer:
        if len(t.dims) > 1:
            size = len(t.raw_data)
            t.ClearField("raw_data")
            t.data_location = onnx.TensorProto.EXTERNAL
            for key, value in (("location", name + ".absent"), ("offset", str(at)), ("length", str(size))):
                t.external_data.add(key=key, value=value)
            at += size
    onnx.save(m, path)


if __name__ == "__main__":
    main()
