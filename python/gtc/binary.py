"""Thin wrappers round the gtc binary."""

import os
import pathlib
import shutil
import subprocess

from .export import export


class GtcError(RuntimeError):
    """The gtc binary is missing, or it failed; what it printed is on the standard streams."""


def binary():
    """The path of the gtc binary: $GTC, or gtc on the PATH, or bin/gtc above the working folder or this package."""
    if named := os.environ.get("GTC"):
        if shutil.which(named) is None:
            raise GtcError(f"$GTC is {named}, which is not a program that can be run")
        return named
    if found := shutil.which("gtc"):
        return found
    for start in (pathlib.Path.cwd(), pathlib.Path(__file__).resolve().parent):
        for folder in (start, *start.parents):
            if os.access(candidate := folder / "bin" / "gtc", os.X_OK) and candidate.is_file():
                return str(candidate)
    raise GtcError("there is no gtc binary: build it with `go build -o bin/gtc ./cmd/gtc`, and put it on the PATH or name it in $GTC")


TYPES = {"torch.float32": "fp32", "torch.bfloat16": "bf16", "torch.float16": "fp16"}  # what flags call PyTorch's types


def arguments(flags):
    """Command-line flags of keyword arguments: dp=2 is --dp 2, sync_bn=True is --sync-bn, a list repeats its flag.

    precision=torch.bfloat16 is --precision bf16.
    """
    out = []
    for key, value in flags.items():
        flag = "--" + key.strip("_").replace("_", "-")
        if value is None or value is False:
            continue
        if value is True:
            out.append(flag)
        elif isinstance(value, dict):
            for k, v in value.items():
                out += [flag, f"{k}={v}"]
        elif isinstance(value, (list, tuple)):
            for v in value:
                out += [flag, str(v)]
        else:
            out += [flag, TYPES.get(str(value), str(value))]
    return out


def call(*args):
    """Runs gtc with args; its output goes where Python's does."""
    done = subprocess.run([binary(), *args])
    if done.returncode:
        raise GtcError(f"gtc {' '.join(args)}: exit code {done.returncode}")


def compile(model, args, out="gtc-out", loss=None, targets=None, **flags):
    """Exports the module and compiles it into the folder `out`; the ONNX file is left beside it, as `out`.onnx.

    `flags` are those of `gtc compile`, with underscores for dashes: gtc.compile(m, x, "gtc-out", loss="mse", batch=64, dp=2).
    The weights that training starts from are the module's. Returns the Report of the export; raises ExportError or GtcError.
    """
    out = os.fspath(out).rstrip("/")
    report = export(model, args, out + ".onnx", loss=loss, targets=targets)
    call("compile", report.path, "-o", out, *arguments(flags))
    return report


def run(out="gtc-out", **flags):
    """Trains the compiled folder `out`: gtc.run("gtc-out", data="train.npz", epochs=5). Flags are those of `gtc run`; raises GtcError."""
    call("run", os.fspath(out), *arguments(flags))
