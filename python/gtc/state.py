"""gtc.load_state: trained weights back into the PyTorch module."""

import json
import os
import pathlib
import re
import struct
import subprocess
import tempfile

import torch

from .binary import GtcError, binary

DTYPES = {
    "f64": torch.float64, "f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32,
    "i16": torch.int16, "i8": torch.int8, "u8": torch.uint8, "bool": torch.bool, "f8_e4m3": torch.float8_e4m3fn, "f8_e5m2": torch.float8_e5m2,
}
COUNTERS = ("step", "empty_steps", "noise_seed", "loss_scale", "loss_scale_good", "loss_scale_skipped")  # of the training program
ADAPTER = re.compile(r"^base_model\.model\..*\.lora_(A\.weight|B\.weight|embedding_[AB])$")  # names of `gtc compile --lora`
OF_TRAINING = ("optim/", "const/")  # prefixes of tensors that are not the module's


class StateError(ValueError):
    """The checkpoint cannot be read, or does not fit the module; the message lists every name that does not."""


def load_state(model, checkpoint, strict=True):
    """Copies the weights of `checkpoint` into `model` and returns the names that were set.

    checkpoint: a folder that `gtc compile` made (its newest checkpoint, or its initial weights), a folder of checkpoints, one
        checkpoint (step-000500), or a file of `gtc export` (.safetensors or .onnx). Adapters (compile --lora) are merged into the
        weights below them; that takes the gtc binary and the compiled folder.
    strict: a parameter of the module that the checkpoint lacks, and a tensor that the module lacks, are errors. Tied parameters
        need one of their names; parameters that the exported graph does not use, buffers that nothing updates, and the counters
        num_batches_tracked are not in checkpoints and stay as they are. Without strict what fits by name is loaded.

    Shapes must agree in any case. The module is changed only when all fits; raises StateError otherwise.
    """
    tensors, unused, source = read(pathlib.Path(checkpoint))
    names = {n: t for n, t in (*model.named_parameters(remove_duplicate=False), *model.named_buffers(remove_duplicate=False))}
    if any(ADAPTER.search(n) and n not in names for n in tensors):
        tensors = merged(pathlib.Path(checkpoint))
    unexpected = sorted(n for n in tensors if n not in names)
    filled = {id(names[n]) for n in tensors if n in names}
    missing = [n for n, p in model.named_parameters() if id(p) not in filled and p.requires_grad and n not in unused]
    wrong = [f"{n}: the checkpoint has {list(t.shape)}, but the module has {list(names[n].shape)}" for n, t in tensors.items()
             if n in names and t.shape != names[n].shape]
    faults = []
    if strict and missing:
        faults.append(f"no tensor for {len(missing)} of the module's parameters: {listed(missing)}")
    if strict and unexpected:
        faults.append(f"the module has no parameter or buffer for {len(unexpected)} tensor{'s' * (len(unexpected) > 1)}: {listed(unexpected)}")
    if wrong:
        faults.append("other shapes: " + listed(wrong, "; "))
    if not any(n in names for n in tensors) and not faults:
        faults.append("no tensor has the name of a parameter or buffer of the module")
    if faults:
        hint = ""
        if unexpected and missing:
            hint = "\n  a file that the default dynamo exporter wrote has names of its own: export with gtc.export"
        raise StateError(f"{source} does not fit {type(model).__name__}:\n  " + "\n  ".join(faults) + hint)
    with torch.no_grad():
        for name, tensor in tensors.items():
            if name in names:
                names[name].copy_(tensor)
    return sorted(n for n in tensors if n in names)


def listed(names, comma=", "):
    """Names for a message, the first twenty."""
    return comma.join(names[:20]) + (f"{comma}and {len(names) - 20} more" if len(names) > 20 else "")


def read(path):
    """({name: tensor}, names of parameters that the graph does not use, what was read)."""
    if not path.exists():
        raise StateError(f"{path} does not exist")
    if path.is_file():
        if path.suffix == ".onnx":
            return *read_onnx(path), path
        return drop_training(read_safetensors(path)), set(json.loads(metadata(path).get("gtc.unused", "[]"))), path
    folder, unused = path, set()
    if (path / "gtc.json").exists():
        unused = unused_in(path)
        folder = path / "checkpoints"
        if not (folder / "latest").exists():
            kept = roles_in(path)
            tensors = read_safetensors(path / "weights.safetensors")
            return {n: t for n, t in tensors.items() if kept.get(n, "") in ("param", "buffer")}, unused, path / "weights.safetensors"
    if (folder / "latest").exists():
        folder = folder / pathlib.Path((folder / "latest").read_text().strip()).name
    if not (folder / "index.json").exists():
        raise StateError(f"{path} is neither a folder that gtc compile made nor a checkpoint: it has no gtc.json, latest or index.json")
    for above in folder.resolve().parents[:2]:
        unused = unused or unused_in(above)
    return drop_training(read_checkpoint(folder)), unused, folder


def merged(path):
    """{name: tensor} of the module with the adapters at `path` merged, by `gtc export --merge-lora`."""
    how = "`gtc export GTC-OUT --merge-lora -o FILE.safetensors` writes the module's own"
    if path.is_file():
        raise StateError(f"{path} holds LoRA adapters, not the weights that they adapt: {how}")
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "merged.safetensors")
        try:
            done = subprocess.run([binary(), "export", str(path), "--merge-lora", "-o", str(out)], capture_output=True, text=True)
        except GtcError as fault:
            raise StateError(f"{path} holds LoRA adapters; {how}, which needs the gtc binary: {fault}") from None
        if done.returncode:
            raise StateError(f"{path} holds LoRA adapters, which could not be merged into the weights: {done.stderr.strip()}")
        return read_safetensors(out)


def drop_training(tensors):
    """Without what belongs to the optimizer and the program."""
    return {n: t for n, t in tensors.items() if n not in COUNTERS and not n.startswith(OF_TRAINING)}


def roles_in(folder):
    """{tensor: role} of a compiled folder."""
    manifest = json.loads((folder / "gtc.json").read_text())
    return {t["name"]: t.get("role", "") for p in manifest.get("programs", []) for t in p.get("tensors", [])}


def unused_in(folder):
    """What the model that a compiled folder keeps records as unused parameters."""
    for path in (folder / "source").glob("*.onnx") if (folder / "gtc.json").exists() else ():
        return read_onnx(path, tensors=False)[1]
    return set()


def read_onnx(path, tensors=True):
    """({initializer: tensor}, unused parameters) of an ONNX file; only parameters and buffers where the file tells them."""
    import onnx
    from onnx import numpy_helper

    model = onnx.load(str(path), load_external_data=tensors)
    record = {p.key: json.loads(p.value) for p in model.metadata_props if p.key.startswith("gtc.")}
    unused = set(record.get("gtc.unused", []))
    if not tensors:
        return {}, unused
    wanted = None
    if "gtc.parameters" in record:
        wanted = {*record["gtc.parameters"], *record.get("gtc.frozen", []), *record.get("gtc.buffers", [])}
    found = {i.name: torch.from_numpy(numpy_helper.to_array(i).copy()) for i in model.graph.initializer if wanted is None or i.name in wanted}
    return found, unused


def metadata(path):
    """What a safetensors file says of itself, text by name; nothing when it is damaged, which reading it tells."""
    with open(path, "rb") as file:
        try:
            (size,) = struct.unpack("<Q", file.read(8))
            return json.loads(file.read(min(size, 1 << 28))).get("__metadata__", {})
        except (struct.error, ValueError, AttributeError):
            return {}


def read_safetensors(path):
    """{name: tensor} of a safetensors file."""
    data = path.read_bytes()
    try:
        if len(data) < 8:
            raise ValueError(f"it has {len(data)} bytes")
        (size,) = struct.unpack_from("<Q", data)
        if len(data) < 8 + size:
            raise ValueError(f"it ends at byte {len(data)}, but its header at {8 + size}")
        header = json.loads(data[8 : 8 + size])
        header.pop("__metadata__", None)
        return {n: tensor(data, 8 + size, h) for n, h in header.items()}
    except (struct.error, ValueError, KeyError, TypeError) as fault:
        raise StateError(f"{path} is damaged or not a safetensors file: {fault}") from None


def tensor(data, start, header):
    """The tensor of a safetensors header."""
    dtype = DTYPES[header["dtype"].lower()]
    begin, end = (start + x for x in header["data_offsets"])
    if end > len(data):
        raise ValueError(f"it ends at byte {len(data)}, but a tensor at {end}")
    if begin == end:
        return torch.zeros(header["shape"], dtype=dtype)
    return torch.frombuffer(bytearray(data[begin:end]), dtype=dtype).reshape(header["shape"])


def read_checkpoint(folder):
    """{name: tensor} of one checkpoint, its parts put together. Sizes are checked; checksums are gtc's to check."""
    try:
        index = json.loads((folder / "index.json").read_text())["index"]
        names = [s["file"] for s in index["shards"]]
        if any(os.path.basename(n) != n for n in names):
            raise ValueError("a shard is in another folder")
        shards = [read_safetensors(folder / n) for n in names]
        return {n: whole(n, t, shards) for n, t in index["tensors"].items()}
    except (OSError, KeyError, ValueError, RuntimeError) as fault:
        if isinstance(fault, StateError):
            raise
        raise StateError(f"{folder} is damaged: {type(fault).__name__}: {fault}") from None


def whole(name, entry, shards):
    """One tensor from its parts."""
    out = torch.empty(entry["shape"], dtype=DTYPES[entry["dtype"].lower()])
    for part in entry["parts"]:
        offset, shape = part["offset"] or [], part["shape"] or []
        if list(shape) == list(entry["shape"]):
            return shards[part["shard"]][name]
        key = name + "@" + ",".join(f"{o}:{o + n}" for o, n in zip(offset, shape))
        out[tuple(slice(o, o + n) for o, n in zip(offset, shape))] = shards[part["shard"]][key]
    return out
