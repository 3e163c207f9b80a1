"""Writes the ONNX files of examples/ with fresh seeded weights:  tests/torch/run.sh export_examples.py [mlp|cnn|gpt ...]"""

import pathlib
import sys

import onnx
import onnxruntime
import torch

from models import CONTEXT, EXAMPLES, ROOT, VOCAB

SEED = 1337


def sample(kind, batch):
    """A batch of random input of the model's kind."""
    if kind == "image":
        return torch.randint(0, 256, (batch, 1, 28, 28), dtype=torch.uint8)
    return torch.randint(0, VOCAB, (batch, CONTEXT))


def relative_traces(model):
    """Keeps, of the stack trace in each node, only the frames of this repository, with paths relative to it."""
    kept_keys = {"namespace", "pkg.torch.onnx.name_scopes", "pkg.torch.onnx.stack_trace"}
    for node in model.graph.node:
        kept = [p for p in node.metadata_props if p.key in kept_keys]
        for prop in kept:
            if prop.key != "pkg.torch.onnx.stack_trace":
                continue
            frames = ["  File" + f if i else f for i, f in enumerate(prop.value.split("\n  File"))]
            ours = [f.strip() for f in frames if str(ROOT) + "/" in f]
            prop.value = "\n  ".join(ours).replace(str(ROOT) + "/", "")
        del node.metadata_props[:]
        node.metadata_props.extend(p for p in kept if p.value)
    for value in [*model.graph.input, *model.graph.output, *model.graph.value_info, *model.graph.initializer]:
        del value.metadata_props[:]
    del model.metadata_props[:]


def check(name, path, torch_model):
    """Parameters carry their PyTorch names and values, and an ONNX runtime agrees with PyTorch at two batch sizes."""
    model = onnx.load(path)
    onnx.checker.check_model(model)
    held = {i.name: onnx.numpy_helper.to_array(i) for i in model.graph.initializer}
    for key, value in torch_model.named_parameters():
        aliases = [k for k, v in torch_model.named_parameters(remove_duplicate=False) if v is value]
        found = [k for k in aliases if k in held]
        if len(found) != 1 or not (held[found[0]] == value.detach().numpy()).all():
            raise SystemExit(f"{path}: parameter {key} is held as {found}, wanted once and equal")
    session = onnxruntime.InferenceSession(path)
    for batch in (3, 12):
        x = sample(EXAMPLES[name]["input"], batch)
        got = torch.from_numpy(session.run(None, {EXAMPLES[name]["input"]: x.numpy()})[0])
        torch.testing.assert_close(got, torch_model(x), rtol=1e-4, atol=1e-5)
    if str(ROOT).encode() in pathlib.Path(path).read_bytes():
        raise SystemExit(f"{path}: names the folder it was made in")


def export(name):
    """Builds, exports and checks one example."""
    ex = EXAMPLES[name]
    torch.manual_seed(SEED)
    model = ex["build"]().eval()
    x = sample(ex["input"], ex["batch"])
    program = torch.onnx.export(
        model, (x,), dynamo=True, optimize=False, opset_version=20, verbose=False, input_names=[ex["input"]], output_names=["logits"],
        dynamic_shapes=({0: torch.export.Dim("batch")},))
    proto = program.model_proto
    relative_traces(proto)
    ex["file"].parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, ex["file"])
    check(name, ex["file"], model)
    print(f"{ex['file'].relative_to(ROOT)}: {ex['file'].stat().st_size} bytes, {sum(p.numel() for p in model.parameters())} parameters, "
          f"{len(proto.graph.node)} nodes")


if __name__ == "__main__":
    for wanted in sys.argv[1:] or EXAMPLES:
        export(wanted)
