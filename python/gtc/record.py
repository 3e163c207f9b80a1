"""gtc.record: what a file of PyTorch's own exporters does not tell of its module."""

import json
import os

import onnx
import torch

from . import onnxfile

KEYS = ("gtc.module", "gtc.frozen", "gtc.tied", "gtc.transient", "gtc.padding", "gtc.evaluation", "gtc.loss")


def record(model, path, loss=None):
    """Notes in the metadata of the ONNX file at `path`, which torch.onnx.export wrote of `model` in any of its forms, what the file does
    not tell, and gives it back as a dict: parameters with requires_grad=False, which are then not trained ("gtc.frozen"), padding rows of
    embeddings, which then stay as they are ("gtc.padding"), all names of tied parameters, and, of a module in training mode, the batch
    normalisations inside that are in evaluation mode and keep their statistics, while the others train ("gtc.evaluation").

    loss: what `gtc compile` takes when --loss is not given: "graph" when the first output is the loss, or the name of one of gtc's.

    The rest of the file, and weights beside it, stay as they are; an earlier record is replaced. Raises ValueError when the file is of
    another module, or gtc.export's, which has a record of its own.
    """
    path = os.fspath(path)
    proto = onnx.load(path, load_external_data=False)
    props = {p.key: p.value for p in proto.metadata_props}
    if "gtc.parameters" in props:
        raise ValueError(f"{path} is a file of gtc.export, which has recorded all this already")
    parameters = dict(model.named_parameters(remove_duplicate=False))
    told = " ".join([*(i.name for i in proto.graph.initializer), *props.values(), *(p.value for p in proto.graph.metadata_props)])
    if parameters and not any(name in told for name in parameters):
        raise ValueError(f"{path} names none of the parameters of {type(model).__name__}: it was exported from another module, or from one that wraps this one")
    modules, first, tied = dict(model.named_modules()), {}, {}
    for name, tensor in (*parameters.items(), *model.named_buffers(remove_duplicate=False)):
        if first.setdefault(id(tensor), name) != name:
            tied[name] = first[id(tensor)]
    found = {
        "gtc.module": {"version": 1, "torch": torch.__version__.split("+")[0]},
        "gtc.frozen": [n for n, p in model.named_parameters() if not p.requires_grad],
        "gtc.tied": tied,
        "gtc.transient": onnxfile.transient(model),
        "gtc.padding": onnxfile.padding_rows(model, parameters),
    }
    if model.training:  # a module that is in evaluation mode as a whole was exported for something else
        found["gtc.evaluation"] = [n for n, m in modules.items() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and not m.training]
    if loss is not None:
        found["gtc.loss"] = loss
    kept = [p for p in proto.metadata_props if p.key not in KEYS]
    del proto.metadata_props[:]
    proto.metadata_props.extend(kept)
    for key, value in found.items():
        entry = proto.metadata_props.add()
        entry.key, entry.value = key, json.dumps(value)
    onnx.save(proto, path)
    return found
