"""Thin wrappers round the gtc binary."""

import json
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
    """Command-line flags of keyword arguments: dp=2 is --dp=2, sync_bn=True is --sync-bn, shuffle=False is --shuffle=false.

    A list or tuple repeats its flag, a dict repeats it with KEY=VALUE, None leaves it out; precision=torch.bfloat16 is
    --precision=bf16. Which flags there are is the program's to know.
    """
    out = []
    for key, value in flags.items():
        flag = "--" + key.strip("_").replace("_", "-")
        if value is None:
            continue
        if isinstance(value, dict):
            values = [f"{k}={text(listed(v, 'x' if key == 'dim' else ','))}" for k, v in value.items()]
        elif isinstance(value, (list, tuple)):
            values = [text(v) for v in value]
        elif isinstance(value, bool):
            out.append(flag if value else flag + "=false")
            continue
        else:
            values = [text(value)]
        out += [f"{flag}={v}" for v in values]  # in one word: --resume takes a value in no other way, a number may be negative
    return out


def listed(value, by):
    """The members of a tuple or list in one word: dim={"x": (4, 16)} is --dim x=4x16, value={"n": (2, 3)} is --value n=2,3."""
    return (by.join(text(v) for v in value) or "scalar") if isinstance(value, (list, tuple)) else value


def text(value):
    """A value as a flag takes it."""
    if isinstance(value, bool):
        return str(value).lower()
    return TYPES.get(str(value), str(value))


def call(*args):
    """Runs gtc with args; its output goes where Python's does."""
    done = subprocess.run([binary(), *args])
    if done.returncode:
        raise GtcError(f"gtc {' '.join(args)}: exit code {done.returncode}")


def compile(model, args, out="gtc-out", loss=None, targets=None, batch_dim=0, **flags):
    """Exports the module and compiles it into the folder `out`; the ONNX file is left beside it, as `out`.onnx.

    `batch_dim` is that of `export`: the dimension of the arguments that counts the samples, where it is not the first.
    `flags` are those of `gtc compile`, with underscores for dashes: gtc.compile(m, x, "gtc-out", loss="mse", batch=64, dp=2).
    The weights that training starts from are the module's. Returns the Report of the export; raises ExportError or GtcError.
    """
    out = os.fspath(out).rstrip("/")
    report = export(model, args, out + ".onnx", loss=loss, targets=targets, batch_dim=batch_dim)
    call("compile", report.path, "-o", out, *arguments({"batch_dim": report.batch_dims, **flags}))
    return report


def run(out="gtc-out", **flags):
    """Trains the compiled folder `out`: gtc.run("gtc-out", data="train.npz", epochs=5). Flags are those of `gtc run`; raises GtcError.

    With json=True the run is an iterator of its events, each a dict with the key "event" (start, step, eval, save, end); numbers
    that are none are None. It starts at once, raises GtcError at its end when the program failed, and is stopped when the
    iterator is closed before its end.
    """
    args = ("run", os.fspath(out), *arguments(flags))
    if flags.get("json") is True:
        return Events(args)
    call(*args)


class Events:
    """The events of a program that prints JSON lines."""

    def __init__(self, args):
        self.args = args
        self.process = subprocess.Popen([binary(), *args], stdout=subprocess.PIPE, text=True)

    def __iter__(self):
        return self

    def __next__(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
            print(line, end="")
        self.process.stdout.close()
        if code := self.process.wait():
            raise GtcError(f"gtc {' '.join(self.args)}: exit code {code}")
        raise StopIteration

    def close(self):
        """Stops the program, which ends as it does on SIGTERM, when it has not ended."""
        if self.process.poll() is None:
            self.process.terminate()
        if not self.process.stdout.closed:
            for _ in self.process.stdout:  # read to its end: a program whose output goes nowhere dies before it has saved
                pass
            self.process.stdout.close()
        self.process.wait()

    def __enter__(self):
        return self

    def __exit__(self, *fault):
        self.close()

    def __del__(self):
        if "process" in self.__dict__:
            self.close()
