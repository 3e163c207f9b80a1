"""Exports models of many families in the three forms that people have, and lets gtc check compare each with PyTorch:

    tests/torch/run.sh families.py [FAMILY ...] [--forms ts,gtc,opt] [--export-only] [--fresh] [--cache FOLDER] [--json FILE]

    ts    the TorchScript exporter in training mode, nothing folded
    gtc   gtc.export: the dynamo exporter without its optimiser, with gtc's record of parameters
    opt   the dynamo exporter with its defaults, of the module in evaluation mode: what most files are

References (REF.npz as gtc check reads them) are computed in float64. Everything is kept in --cache ($GTC_FAMILIES, or
gtc/families in the user's cache) and made anew with --fresh. gtc is $GTC, or bin/gtc; references and exports need torchvision, timm and transformers,
which run.sh installs when this tool is named. Prints a table; exits 1 when a check failed. The verdicts:

    ok 3e-07   all within the tolerance; the largest error
    as f32 1e-04  a gradient or curve is beyond it, and PyTorch's own float32, in one of its two memory layouts, is at least half as far off
    told 3e-07 as ok, but the exporter lost a parameter (a table of which only rows are read, a name of a tied one), and gtc inspect tells so
    DIFF 0.3   compared, and beyond it
    UNMATCHED  as ok, but a gradient of the reference has no counterpart, and gtc inspect does not say why
    refused    gtc says why it cannot (the message follows the table)
    lost       the exporter folded batch normalisation away, as it does in evaluation mode, and gtc inspect tells so (or does not: UNTOLD)
    no export  PyTorch's exporter cannot write it
"""

import argparse
import collections
import contextlib
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import time
import warnings

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

import gtc  # noqa: E402
from family_models import FAMILIES  # noqa: E402
from family_parts import PARTS  # noqa: E402
from gtc import onnxfile  # noqa: E402
from gtc.graph import Flat  # noqa: E402
from make_reference import OPTIMIZERS, STEPS, double  # noqa: E402

FAMILIES = {**FAMILIES, **PARTS}
FORMS = ("ts", "gtc", "opt")
SEED = 20


def built(name):
    """The family's job, with its weights."""
    torch.manual_seed(SEED)
    job = FAMILIES[name]()
    job["model"].train()
    for m in job["model"].modules():
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.bias is not None:
            # Between two normalisations a scale without a shift has no gradient but rounding.
            torch.nn.init.normal_(m.bias, std=0.3)
    return job


def as_doubles(job):
    """The flat module in float64, and its inputs."""
    flat = Flat(job["model"], job["inputs"]).double()
    return flat, [double(x) for x in flat.tensors]


def evaluate(job, flat, inputs):
    """Outputs and loss."""
    outs = flat(*inputs)
    target = job["target"]
    return outs, outs[0] if target is None else job["loss"](outs[0], double(target))


def reference(name):
    """All arrays of REF.npz by name."""
    job = built(name)
    flat, inputs = as_doubles(job)
    arrays = {f"in{i}": x.numpy() for i, x in enumerate(Flat(job["model"], job["inputs"]).tensors)}
    if job["target"] is not None:
        arrays["target"] = job["target"].numpy()
    outs, loss = evaluate(job, flat, inputs)
    loss.backward()
    arrays.update({f"out{i}": x.detach().numpy() for i, x in enumerate(outs) if x.is_floating_point()})
    arrays["loss"] = loss.detach().numpy()
    for key, p in flat.named_parameters():
        if p.grad is not None:
            arrays["grad/" + key.removeprefix("model.")] = p.grad.numpy()
    for key, make in OPTIMIZERS.items():
        job = built(name)
        flat, inputs = as_doubles(job)
        opt, curve = make(flat.parameters()), []
        for _ in range(STEPS):
            opt.zero_grad()
            loss = evaluate(job, flat, inputs)[1]
            loss.backward()
            curve.append(loss.item())
            opt.step()
        arrays["curve/" + key] = np.array(curve)
    return arrays


def relative(have, want):
    """The error of have, in the Euclidean norm."""
    return np.linalg.norm(have - want) / np.linalg.norm(want)


def float32_errors(name, ref):
    """Errors of PyTorch's own float32, in gtc check's measure, by the names of its figures: the worse of contiguous and channels-last tensors."""
    exact = dict(np.load(ref).items())
    gradients = {k.removeprefix("grad/"): v for k, v in exact.items() if k.startswith("grad/")}
    floor = 1e-6 * max(np.linalg.norm(v) for v in gradients.values())  # as gtc check: what is smaller is rounding of zero
    worst = dict.fromkeys(["grad", *OPTIMIZERS], 0.0)
    for layout in (torch.contiguous_format, torch.channels_last):
        for key, make in OPTIMIZERS.items():
            job = built(name)
            flat = Flat(job["model"], job["inputs"]).to(memory_format=layout)
            inputs = [x.to(memory_format=layout) if x.dim() == 4 else x for x in flat.tensors]
            opt, curve = make(flat.parameters()), []
            for step in range(STEPS):
                opt.zero_grad()
                outs = flat(*inputs)
                loss = outs[0] if job["target"] is None else job["loss"](outs[0], job["target"])
                loss.backward()
                for k, p in flat.named_parameters() if step == 0 else []:
                    want = gradients.get(k.removeprefix("model."))
                    if want is not None and np.linalg.norm(want) > floor:
                        worst["grad"] = max(worst["grad"], relative(p.grad.double().numpy(), want))
                curve.append(loss.item())
                opt.step()
            worst[key] = max(worst[key], relative(np.array(curve), exact["curve/" + key]))
    return worst


def excused(name, ref, verdict, result, tol):
    """The verdict on a check beyond the tolerance: outputs and loss within it, the rest not twice as far as float32 itself is."""
    figures = {"grad": result["grad_max"], **result["curves"]}
    numeric = all(isinstance(v, (int, float)) for v in (result["out"], result["loss"], *figures.values()))
    if result["unmatched"] or not numeric or max(result["out"], result["loss"]) > tol:
        return verdict
    own = float32_errors(name, ref)
    near = all(v <= max(tol, 2 * own.get(k, 0.0)) for k, v in figures.items())
    return f"as f32 {max(figures.values()):.0e}" if near else verdict


def export(name, form, path):
    """Writes one form; the message when PyTorch cannot."""
    job = built(name)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            if form == "opt":
                flat = Flat(job["model"].eval(), job["inputs"])
                with torch.no_grad():
                    flat(*flat.tensors)
                torch.onnx.export(flat, flat.tensors, path, dynamo=True, verbose=False, external_data=False, input_names=flat.names, output_names=flat.outputs)
                plain_names(path)
                return ""
            report = gtc.export(job["model"], job["inputs"], path, exporter={"ts": "torchscript", "gtc": "dynamo"}[form], quiet=True)
            return "".join(f"LOST: {x}\n" for x in report.lost)
    except Exception as fault:  # exporters raise anything
        return f"no export: {type(fault).__name__}: {shortened(str(fault))}"


def shortened(text):
    """The first lines of a message: exporters print whole graphs."""
    return "\n".join(line[:300] for line in text.splitlines()[:6])


def plain_names(path):
    """Removes the prefix of the flat module from a file's names: users export the module itself."""
    import onnx

    model = onnx.load(path)
    onnxfile.rename(model, {i.name: i.name.removeprefix("model.") for i in model.graph.initializer})
    onnxfile.drop_prefix(model)
    onnx.save(model, path)


def strip_record(path):
    """Removes gtc's record from a TorchScript file: as anyone's file it must be understood without."""
    import onnx

    model = onnx.load(path)
    kept = [p for p in model.metadata_props if not p.key.startswith("gtc.")]
    del model.metadata_props[:]
    model.metadata_props.extend(kept)
    onnx.save(model, path)


def has_batch_norm(name):
    """Whether the model normalises by batch: in evaluation mode that is folded away."""
    return any(isinstance(m, torch.nn.modules.batchnorm._BatchNorm) for m in built(name)["model"].modules())


def folded(binary, model):
    """The verdict on a file whose batch normalisation is gone: gtc must say so."""
    done = subprocess.run([binary, "inspect", str(model)], capture_output=True, text=True, timeout=300)
    told = [line for line in done.stdout.splitlines() if line.startswith("warning") and "batch norm" in line.lower()]
    return ("lost, told" if told else "lost UNTOLD"), done.stdout[-600:] + done.stderr


def told(binary, model, names):
    """Whether gtc inspect says of each parameter of names that the file lacks it, or has it as part of another's tensor."""
    lines = subprocess.run([binary, "inspect", str(model)], capture_output=True, text=True, timeout=300).stdout.splitlines()
    said = [line for line in lines if line.startswith("warning") or " part of " in line or "the same tensor" in line]
    return all(any(re.search(rf"(?<![\w.]){re.escape(n)}(?![\w.]*\w)", line) for line in said) for n in names)


def made(name, forms, folder, fresh):
    """Writes what is missing of a family's files; {form: message}."""
    notes = folder / f"{name}.json"
    said = json.loads(notes.read_text()) if notes.exists() and not fresh else {}
    ref = folder / f"{name}.npz"
    if fresh or not ref.exists():
        np.savez(ref, **reference(name))
    for form in forms:
        path = folder / f"{name}.{form}.onnx"
        if form in said and not fresh:
            continue
        path.unlink(missing_ok=True)
        said[form] = export(name, form, str(path))
        said["batch_norm"] = has_batch_norm(name)
        if form == "ts" and path.exists():
            strip_record(str(path))
        notes.write_text(json.dumps(said, indent=1))
    return said


def checked(binary, name, model, ref, tol):
    """(verdict, details) of gtc check."""
    start = time.time()
    try:
        done = subprocess.run(["nice", "-n", os.environ.get("GTC_NICE", "10"), binary, "check", str(model), "--reference", str(ref), "--json", "--tol", str(tol)], capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired:
        return "time out", ""
    took = f"{time.time() - start:.0f} s"
    if done.returncode == 2 or not done.stdout.strip().startswith("{"):
        return "refused", done.stderr.strip()
    r = json.loads(done.stdout)
    errors = {"out": r["out"], "loss": r["loss"], "grad": r["grad_max"], **{k: v for k, v in r["curves"].items()}}
    worst = max((v if isinstance(v, (int, float)) else float("inf")) for v in errors.values())
    detail = ", ".join(f"{k} {v:.1e}" if isinstance(v, float) else f"{k} {v}" for k, v in errors.items())
    if r["unmatched"]:
        detail += f"; unmatched {r['unmatched']}"
    if not r["ok"]:
        return excused(name, ref, f"DIFF {worst:.0e}", r, tol), f"{took}; {detail}"
    if r["unmatched"]:
        return (f"told {worst:.0e}" if told(binary, model, r["unmatched"]) else "UNMATCHED"), f"{took}; {detail}"
    return f"ok {worst:.0e}", f"{took}; {detail}"


def main():
    parse = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parse.add_argument("families", nargs="*", help="all when none is named")
    parse.add_argument("--forms", default=",".join(FORMS))
    parse.add_argument("--cache", default=os.environ.get("GTC_FAMILIES") or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "gtc" / "families")
    parse.add_argument("--fresh", action="store_true", help="make files anew")
    parse.add_argument("--export-only", action="store_true")
    parse.add_argument("--tol", type=float, default=1e-4)
    parse.add_argument("--json", help="write the verdicts to this file")
    args = parse.parse_args()
    folder = pathlib.Path(args.cache)
    folder.mkdir(parents=True, exist_ok=True)
    names, forms = args.families or list(FAMILIES), args.forms.split(",")
    if unknown := [n for n in names if n not in FAMILIES] or [f for f in forms if f not in FORMS]:
        parse.error(f"{unknown} unknown; families: {', '.join(FAMILIES)}; forms: {', '.join(FORMS)}")
    torch.set_num_threads(1)
    binary = os.environ.get("GTC") or str(ROOT / "bin" / "gtc")
    table, details = {}, []
    print(f"{'':24}" + "".join(f"{f:>14}" for f in forms), flush=True)
    for name in names:
        row = table.setdefault(name, {})
        try:
            said = made(name, forms, folder, args.fresh)
        except Exception as fault:
            said = {f: f"no export: the model itself fails: {type(fault).__name__}: {fault}" for f in forms}
        for form in forms:
            if said[form].startswith("no export"):
                row[form], detail = "no export", said[form]
            elif args.export_only:
                row[form], detail = "exported", said[form]
            elif form == "opt" and said.get("batch_norm"):
                row[form], detail = folded(binary, folder / f"{name}.{form}.onnx")
            else:
                row[form], detail = checked(binary, name, folder / f"{name}.{form}.onnx", folder / f"{name}.npz", args.tol)
                detail = (said[form] + detail).strip()
            if not row[form].startswith(("ok", "told", "as f32", "exported", "lost, told")):
                details.append(f"{name}.{form}: {row[form]}: {detail}")
            if args.json:
                table_file = pathlib.Path(args.json)
                table_file.write_text(json.dumps({"table": table, "details": details}, indent=1))
        print(f"{name:24}" + "".join(f"{row[f]:>14}" for f in forms), flush=True)
    verdicts = collections.Counter(re.sub(r" [0-9].*", "", cell) for row in table.values() for cell in row.values())
    print(f"\n{sum(verdicts.values())} files: " + ", ".join(f"{n} {v}" for v, n in verdicts.most_common()) + "\n")
    for d in details:
        print(d[:3000] + "\n")
    return 1 if any(v.startswith(("DIFF", "UNMATCHED", "time out", "refused", "lost U")) for r in table.values() for v in r.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
