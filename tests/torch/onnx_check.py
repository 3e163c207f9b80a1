"""Compares an ONNX file, run by another implementation, with recorded outputs, and loads a state dict into PyTorch.

    tests/torch/run.sh onnx_check.py MODEL.onnx --inputs IN.npz --outputs OUT.npz [--tol 1e-5] [--engine ort|ref|both]
    tests/torch/run.sh onnx_check.py --state W.safetensors --example mlp|cnn|gpt [--inputs IN.npz --outputs OUT.npz]

The arrays of the npz files are keyed by the graph's input and output names; in0, in1... and out0, out1... mean them in
order. An error is the largest difference divided by the largest magnitude of the wanted output (by 1 where that is smaller).
Exits 0 when everything is within tolerance, 1 when not, 2 when it could not run.
"""

import argparse
import sys

import numpy as np
import onnx
import onnxruntime
import torch
from onnx.reference import ReferenceEvaluator
from safetensors.torch import load_file

from models import EXAMPLES, load


def keyed(arrays, names, short):
    """The arrays by graph name, whether stored by name or by position (`short` is "in" or "out")."""
    found = {n: arrays[n] if n in arrays else arrays[f"{short}{i}"] for i, n in enumerate(names) if n in arrays or f"{short}{i}" in arrays}
    if not found:
        raise KeyError(f"none of {names} among the arrays {list(arrays)}")
    return found


def worst(got, want):
    """The error of one output as the module comment defines it; infinite for a wrong shape or a NaN."""
    if got.shape != want.shape or got.size == 0:
        return 0.0 if got.shape == want.shape else float("inf")
    got, want = got.astype(np.float64), want.astype(np.float64)
    error = np.abs(got - want).max() / max(1.0, np.abs(want).max())
    return float("inf") if np.isnan(error) else float(error)


def run_onnx(path, engine, inputs):
    """Outputs by name of the ONNX file under onnxruntime ("ort") or the reference evaluator ("ref")."""
    if engine == "ort":
        session = onnxruntime.InferenceSession(path)
        names = [o.name for o in session.get_outputs()]
        feed = keyed(inputs, [i.name for i in session.get_inputs()], "in")
        return dict(zip(names, session.run(names, feed)))
    model = onnx.load(path)
    held = {i.name for i in model.graph.initializer}
    names = [o.name for o in model.graph.output]
    feed = keyed(inputs, [i.name for i in model.graph.input if i.name not in held], "in")
    return dict(zip(names, ReferenceEvaluator(model).run(names, feed)))


def run_state(path, example, inputs):
    """Loads the state dict into the example's PyTorch model, strictly but for tied names, and runs it."""
    model = load(example)
    state = load_file(path)
    result = model.load_state_dict(state, strict=False)
    every = dict(model.named_parameters(remove_duplicate=False))
    unset = [k for k in result.missing_keys if not any(every[k] is every.get(o) for o in state)]
    if unset or result.unexpected_keys:
        raise KeyError(f"missing {unset}, unexpected {result.unexpected_keys}")
    if not inputs:
        return {}
    feed = keyed(inputs, [EXAMPLES[example]["input"]], "in")
    with torch.no_grad():
        return {"logits": model(*(torch.from_numpy(v) for v in feed.values())).numpy()}


def compare(title, got, outputs, tol):
    """Prints one line per output; whether all are within tolerance."""
    ok = True
    for name, want in keyed(outputs, list(got), "out").items():
        error = worst(got[name], want)
        ok &= error <= tol
        print(f"{title}: {name} {list(want.shape)}: error {error:.3g} {'ok' if error <= tol else f'above {tol:g}'}")
    return ok


def main():
    parse = argparse.ArgumentParser()
    parse.add_argument("model", nargs="?", help="the ONNX file")
    parse.add_argument("--inputs")
    parse.add_argument("--outputs")
    parse.add_argument("--tol", type=float, default=1e-5)
    parse.add_argument("--engine", choices=["ort", "ref", "both"], default="both")
    parse.add_argument("--state", help="a safetensors file to load into --example")
    parse.add_argument("--example", choices=list(EXAMPLES))
    args = parse.parse_args()
    inputs = dict(np.load(args.inputs)) if args.inputs else {}
    outputs = dict(np.load(args.outputs)) if args.outputs else {}
    ok = True
    if args.model:
        onnx.checker.check_model(args.model)
        for engine in ["ort", "ref"] if args.engine == "both" else [args.engine]:
            ok &= compare(engine, run_onnx(args.model, engine, inputs), outputs, args.tol)
    if args.state:
        got = run_state(args.state, args.example, inputs)
        print(f"torch: {args.state} fits {args.example}")
        ok &= not got or compare("torch", got, outputs, args.tol)
    return 0 if ok else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Exception as fault:  # any fault before a verdict is "could not run", which callers tell apart from "differs"
        print(f"onnx_check: {type(fault).__name__}: {fault}", file=sys.stderr)
        sys.exit(2)
