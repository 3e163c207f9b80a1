"""gtc.export: an ONNX file that trains as the PyTorch module would."""

import contextlib
import io
import itertools
import logging
import os
import sys
import warnings

import onnx
import torch
from torch import nn

from . import advice, gradients, onnxfile
from .graph import Flat, Spelling
from .report import Report

EXPORTERS = ("dynamo", "torchscript")


class ExportError(RuntimeError):
    """No exporter could write the module; the message has what each of them said."""


def export(model, args, path, loss=None, dynamic_batch=True, exporter="auto", *, targets=None, opset=None, quiet=False, batch_dim=0):
    """Writes `model` as an ONNX file for training with gtc, prints and returns a Report.

    model: an nn.Module. In evaluation mode it is exported as if train() had been called; modules inside a model in training mode
        that are in evaluation mode (frozen batch normalisation) stay so. The module itself comes back as it was.
    args: one batch of example arguments: a tensor, a tuple (a dict in the last place holds keyword arguments), or a dict.
    path: the file; weights beyond 1 GiB go into path.data beside it.
    loss: nothing (`gtc compile --loss` says it; a module whose first result is one number has its loss in the graph), the name of
        one of gtc's losses (it becomes the file's default), or a module or function, which becomes part of the graph: its scalar
        result is the only output then, and the targets are inputs after the model's. PyTorch's own losses are given the first
        tensor that the model returns and the targets, others all that it returns (a tuple, a dict, a dataclass) and the targets.
        Parameters of a loss module are trained as loss.NAME.
    dynamic_batch: leaves the batch open, in all arguments that have it (`gtc compile --batch`).
    batch_dim: the dimension of the arguments that counts the samples: 1 for [time, batch, channels] of PyTorch's batch_first=False, or a dict
        from names of inputs to dimensions. Arguments without the batch there are taken to have it in front, where they do.
    exporter: "dynamo", "torchscript", or "auto": dynamo, and TorchScript when that fails.
    targets: a tensor or a tuple, an example for a loss in the graph. For PyTorch's usual losses it is made up when not given.
    opset: of ONNX; the exporter's own choice when not given.

    What could not be kept is in Report.lost. Raises ExportError when no exporter can write the module, and ValueError for arguments
    that make no sense.
    """
    if exporter not in ("auto", *EXPORTERS):
        raise ValueError(f"exporter must be auto, dynamo or torchscript, not {exporter!r}")
    if not isinstance(model, nn.Module):
        raise ValueError(f"model must be a torch.nn.Module, not a {type(model).__name__}")
    path = os.fspath(path)
    report = Report(path, loss=loss if isinstance(loss, str) else "graph" if loss is not None else "")
    inner = None if isinstance(loss, str) else loss
    with as_in_training(model, report) as restore:
        flat, outs = prepared(model, args, inner, targets)
        flat.batch_dims = batched(flat, batch_dim)
        report.batch_dims = {n: d for n, d in zip(flat.names, flat.batch_dims) if d}
        if loss is None and scalar_first(outs):
            report.loss = "graph"
            report.notes.append(f"the first of the results, {flat.outputs[0]}, is one number and is taken as the loss")
        report.notes += [f"{a} lies in the memory of {b}; it is an input of its own in the file" for a, b in flat.shared.items()]
        unused = unused_parameters(flat)
        report.lost += gradients.lost(flat.model, flat.own_functions)
        changed = moved(flat, restore)
        failures = []
        for kind in EXPORTERS if exporter == "auto" else (exporter,):
            found, error = attempt(kind, flat, dynamic_batch, opset)
            if found is None:
                failures.append(f"{kind}: {error}")
                continue
            report.exporter = kind
            report.notes += [f"the {f.split(':')[0]} exporter failed: {first_line(f)}" for f in failures]
            proto, notes = found
            restore()
            report.notes += notes
            onnxfile.finish(proto, flat, unused, report)
            kept = onnxfile.statistics(proto)
            report.lost += [f"buffer {n}: the module updates it in every call, the file does not" for n in changed if n not in kept]
            onnxfile.save(proto, path)
            break
        else:
            raise ExportError(advice.of(type(model).__name__, failures, flat.packs))
    if not quiet:
        print(report)
    return report


def first_line(text):
    """The first line that says something."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")[:300]


def told(fault):
    """The first lines of what was wrong at the bottom: exporters wrap it in advice, and put whole graphs into their messages."""
    while fault.__cause__ is not None:
        fault = fault.__cause__
    lines = [line[:300] for line in itertools.takewhile(advice.readable, str(fault).splitlines()) if line.strip()]
    return f"{type(fault).__name__}: " + "\n    ".join(lines[:8])


def scalar_first(outs):
    """Whether a module's results are several of which the first is one number: a loss, as those of transformers do with labels=."""
    return len(outs) > 1 and outs[0].is_floating_point() and outs[0].numel() == 1 and outs[0].dim() <= 1


@contextlib.contextmanager
def as_in_training(model, report):
    """The model in training mode; its mode, buffers, configuration and the random numbers are as before afterwards.

    Gives a function that puts the buffers back at once: running statistics move with every call.
    """
    modes = [(m, m.training) for m in model.modules()]
    buffers = [(b, b.detach().clone()) for b in model.buffers()]
    cached = [m.config for m in model.modules() if getattr(getattr(m, "config", None), "use_cache", None) is True]
    if not model.training:
        model.train()
        report.notes.append("the module was in evaluation mode; it is exported in training mode")

    @torch.no_grad()
    def restore():
        for buffer, value in buffers:
            buffer.copy_(value)

    try:
        for config in cached:
            config.use_cache = False
        with torch.random.fork_rng(devices=[]):
            yield restore
    finally:
        for config in cached:
            config.use_cache = True
        for module, mode in modes:
            module.training = mode
        restore()


def prepared(model, args, loss, targets):
    """The module of tensors, with targets for its loss, and the results of the example: the loss where one is given."""
    given = () if targets is None else (targets,) if torch.is_tensor(targets) else tuple(targets)
    if loss is None and given:
        raise ValueError("targets are for a loss module, but no loss is given")
    flat = Flat(model, args)
    if not flat.tensors:
        raise ValueError("args contain no tensor")
    with torch.no_grad(), advice.watched() as packed:
        outs = flat(*flat.tensors)
    flat.packs = bool(packed)
    if loss is None:
        return flat, outs
    if targets is None:
        given = made_targets(loss, outs[0])
    flat = Flat(model, args, loss, given)
    flat.packs = bool(packed)
    with torch.no_grad():
        value = flat(*flat.tensors)[0]
    if value.numel() != 1:
        raise ValueError(f"the loss must be one number, but has shape {list(value.shape)}")
    return flat, (value,)


def made_targets(loss, out):
    """An example target for one of PyTorch's usual losses and the model's first output."""
    if isinstance(loss, (nn.CrossEntropyLoss, nn.NLLLoss)):
        shape = out.shape[:1] + out.shape[2:] if out.dim() > 1 else ()
        return (torch.zeros(shape, dtype=torch.int64, device=out.device),)
    if isinstance(loss, (nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCELoss, nn.BCEWithLogitsLoss, nn.KLDivLoss)):
        return (torch.zeros_like(out),)
    raise ValueError(f"give targets=…, an example of what {loss!r} takes after the model's output: it cannot be guessed")


def moved(flat, restore):
    """The buffers that calls have changed, but for those of PyTorch's batch normalisation and counters of batches; restores them."""
    now = {n: b.detach().clone() for n, b in flat.model.named_buffers()}
    restore()
    modules = dict(flat.model.named_modules())
    normal = lambda n: n.endswith("num_batches_tracked") or isinstance(modules.get(n.rpartition(".")[0]), nn.modules.batchnorm._BatchNorm)
    return [n for n, b in flat.model.named_buffers() if not normal(n) and not torch.equal(b, now[n])]


def unused_parameters(flat):
    """The parameters that no float result depends on; None when a step of autograd cannot tell."""
    parameters = {id(p): (n, p) for n, p in flat.named_parameters() if p.requires_grad}
    try:
        with torch.enable_grad():
            outs = [o.sum() for o in flat(*flat.tensors) if o.is_floating_point() and o.requires_grad]
            flat.own_functions = gradients.functions(outs)
            grads = torch.autograd.grad(outs, [p for _, p in parameters.values()], allow_unused=True) if outs else []
    except RuntimeError:
        return None
    return {n for (n, _), g in zip(parameters.values(), grads) if g is None}


def attempt(kind, flat, dynamic_batch, opset):
    """((ModelProto, notes), None) from one exporter, or (None, why not)."""
    run = by_dynamo if kind == "dynamo" else by_torchscript
    error = None
    for dynamic in (True, False) if dynamic_batch else (False,):
        try:
            flat.spelling = Spelling(kind == "torchscript")
            with quietly():
                proto = run(flat, dynamic, opset)
        except Exception as fault:  # exporters raise anything
            error = error or told(fault)
            continue
        finally:
            flat.spelling = None
        notes = []
        if dynamic_batch and not open_batch(proto):
            why = "" if dynamic else f"; with an open one the exporter says: {first_line(error)}"
            sizes = [t.shape[d] for t, d in zip(flat.tensors, flat.batch_dims) if d is not None]
            notes = [f"the batch is fixed at {sizes[0] if sizes else 1}" + why]
        return (proto, notes), None
    return None, error


def batched(flat, batch_dim):
    """The dimension that counts the samples, of each tensor; None where there is none."""
    given = batch_dim if isinstance(batch_dim, dict) else {}
    if unknown := sorted(set(given) - set(flat.names)):
        raise ValueError(f"batch_dim: the model has no input {unknown[0]}; it has {', '.join(flat.names)}")
    tensors = dict(zip(flat.names, flat.tensors))
    first = next((n for n in [*given, *flat.names] if tensors[n].dim()), None)
    if first is None:
        return [None] * len(flat.tensors)
    for name, dim in [*given.items(), *([] if given else [(first, batch_dim)])]:
        if not -tensors[name].dim() <= dim < tensors[name].dim():
            raise ValueError(f"batch_dim: input {name} has shape {list(tensors[name].shape)}, and so no dimension {dim}")
    size = tensors[first].shape[given.get(first, 0) if given else batch_dim]

    def of(name, t):
        choices = [given[name]] if name in given else [0] if given else [batch_dim, 0]
        return next((d % t.dim() for d in choices if -t.dim() <= d < t.dim() and t.shape[d] == size), None)

    return [of(n, t) for n, t in tensors.items()]


def open_batch(proto):
    """Whether an input has an open dimension."""
    return any(d.dim_param for i in proto.graph.input for d in i.type.tensor_type.shape.dim)


def by_dynamo(flat, dynamic, opset):
    """The ModelProto of the dynamo exporter without its optimiser."""
    specs = tuple({d: torch.export.Dim.DYNAMIC} if dynamic and d is not None else None for d in flat.batch_dims)
    options = {"opset_version": opset} if opset else {}
    program = torch.onnx.export(
        flat, flat.tensors, dynamo=True, optimize=False, verbose=False, input_names=flat.names, output_names=flat.outputs,
        dynamic_shapes=(specs,) if dynamic else None, **options)
    proto = program.model_proto
    onnxfile.name_batch(proto)
    return proto


def by_torchscript(flat, dynamic, opset):
    """The ModelProto of the TorchScript exporter, nothing folded."""
    if opset is None:  # some operators came later; the exporter knows none after 20
        try:
            return by_torchscript(flat, dynamic, 17)
        except torch.onnx.errors.UnsupportedOperatorError:
            return by_torchscript(flat, dynamic, 20)
    axes = {n: {d: "batch"} for n, d in zip(flat.names, flat.batch_dims) if d is not None} if dynamic else None
    buffer = io.BytesIO()
    torch.onnx.export(
        flat, flat.tensors, buffer, dynamo=False, training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False,
        input_names=flat.names, output_names=flat.outputs, dynamic_axes=axes, opset_version=opset)
    return onnx.load_from_string(buffer.getvalue())


@contextlib.contextmanager
def quietly():
    """Exporters log, warn and print about what is done here on purpose (training mode, fixed dimensions), and dump graphs."""
    before = logging.root.manager.disable
    try:
        logging.disable(logging.ERROR)
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()), silent():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


@contextlib.contextmanager
def silent():
    """The process's own streams go nowhere: PyTorch's C++ prints warnings there, and a whole graph when an export fails."""
    for stream in (sys.__stdout__, sys.__stderr__):
        if stream is not None:
            stream.flush()
    kept = {}
    try:
        with open(os.devnull, "wb") as nowhere:
            for number in (1, 2):
                with contextlib.suppress(OSError):  # there may be none
                    kept[number] = os.dup(number)
                    os.dup2(nowhere.fileno(), number)
            yield
    finally:
        for number, copy in kept.items():
            os.dup2(copy, number)
            os.close(copy)
