"""A module of any signature as a module of tensors: what the exporters take."""

import contextlib
import inspect

import torch
from torch import nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree


class Flat(nn.Module):
    """`model` with tensors as its only arguments and a tuple of tensors as its result, followed by `loss` when there is one.

    Its parameters are named model.NAME, and loss.NAME (loss_.NAME where the model has a loss of its own).
    """

    def __init__(self, model, args, loss=None, targets=()):
        super().__init__()
        self.model = model
        args, kwargs = arguments(args)
        leaves, self._spec = pytree.tree_flatten((args, kwargs))
        self._places = [i for i, x in enumerate(leaves) if torch.is_tensor(x)]
        self._fixed = [None if torch.is_tensor(x) else x for x in leaves]
        self._targets = len(targets)
        if isinstance(loss, nn.Module):
            self.add_module("loss_" if hasattr(model, "loss") else "loss", loss)
        self._criterion = [loss]  # in a list, so that it is not a second submodule
        given = tuple(leaves[i] for i in self._places) + tuple(targets)
        self.names = input_names(model, args, kwargs) + (["target"] if len(targets) == 1 else [f"target{i}" for i in range(len(targets))])
        self.shared = sharing(self.names, given)
        self.tensors = tuple(t.detach().clone(memory_format=torch.contiguous_format) for t in given)
        self.outputs = []  # names, known after the first call
        self.packs = False  # whether a call made a PackedSequence
        self.own_functions = []  # autograd functions with a backward of their own
        self.spelling = None  # a Spelling while it is exported
        self.training = model.training

    def forward(self, *tensors):
        given = tensors[: len(tensors) - self._targets]
        leaves = list(self._fixed)
        for place, tensor in zip(self._places, given):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        with self.spelling or contextlib.nullcontext():
            result = self.model(*args, **kwargs)
            self.outputs, outs = results(result)
            (loss,) = self._criterion
            if loss is None:
                return tuple(outs)
            self.outputs = ["loss"]
            return (loss(outs[0] if plain(loss) else result, *tensors[len(given) :]),)


def plain(loss):
    """Whether a loss is one of PyTorch's own, which take one tensor: they get the first that the module returns, all others what
    it returns, be it a tensor, a tuple, a dict or a dataclass."""
    return isinstance(loss, nn.modules.loss._Loss) or getattr(loss, "__module__", None) == F.__name__


def sharing(names, tensors):
    """{name: an earlier one} of tensors that lie in the same memory: an exporter takes labels=input_ids for one input."""
    first, out = {}, {}
    for name, t in zip(names, tensors):
        storage = t.untyped_storage() if t.layout == torch.strided else t
        key = storage.data_ptr() if storage is not t else id(t)
        if t.numel() and first.setdefault(key, name) != name:
            out[name] = first[key]
    return out


class Detached(torch.autograd.Function):
    """Tensor.detach for the TorchScript exporter, which drops detach: a node that onnxfile.detached turns into a marked Identity."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, dy):
        return None

    @staticmethod
    def symbolic(g, x):
        return g.op("gtc::Detach", x).setType(x.type())


class Spelling(TorchFunctionMode):
    """While it is on, calls of which exporters lose a part are spelled out: label smoothing, targets that are probabilities, detach, and torch.no_grad(); and
    diff for the TorchScript exporter, which has none, and with which transformers looks for sequences packed into one."""

    def __init__(self, torchscript):
        super().__init__()
        self.torchscript = torchscript
        self.detach = Detached.apply if torchscript else torch.Tensor.detach

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is F.cross_entropy and (kwargs.get("label_smoothing", 0.0) or (args[1] if len(args) > 1 else kwargs["target"]).is_floating_point()):
            return smoothed(*args, **kwargs)
        if self.torchscript and func in (torch.diff, torch.Tensor.diff) and args[0].dtype is not torch.bool:
            return differences(*args, **kwargs)
        if func is torch.Tensor.detach and args[0].is_floating_point():
            return self.detach(args[0])
        out = func(*args, **kwargs)
        if not torch.is_grad_enabled() and torch.is_tensor(out) and out.is_floating_point() and any(torch.is_tensor(a) and a.requires_grad for a in args):
            return self.detach(out)
        return out


def differences(x, n=1, dim=-1, prepend=None, append=None):
    """torch.diff of numbers by subtractions."""
    x = torch.cat([part for part in (prepend, x, append) if part is not None], dim)
    for _ in range(n):
        x = x.narrow(dim, 1, x.shape[dim] - 1) - x.narrow(dim, 0, x.shape[dim] - 1)
    return x


def smoothed(input, target, weight=None, size_average=None, ignore_index=-100, reduce=None, reduction="mean", label_smoothing=0.0):
    """F.cross_entropy with label smoothing, as PyTorch defines it, by ops that exporters keep, and with probabilities for targets."""
    x = input
    logp = F.log_softmax(x, 1 if x.dim() > 1 else 0)
    at, count = (1 if x.dim() > 1 else 0), x.shape[1 if x.dim() > 1 else 0]
    scale = torch.ones(count, dtype=x.dtype, device=x.device) if weight is None else weight
    scale = scale.reshape([-1] + [1] * (x.dim() - 2)) if x.dim() > 1 else scale
    if target.is_floating_point():  # probabilities: the mean is over the samples
        wanted = target * (1 - label_smoothing) + label_smoothing / count
        loss = -(wanted * logp * scale).sum(at)
        return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.mean()
    valid = target != ignore_index
    safe = torch.where(valid, target, torch.zeros_like(target)).unsqueeze(at)
    of_target = (scale * torch.ones_like(logp)).gather(at, safe).squeeze(at) * valid.to(x.dtype)
    hit = -logp.gather(at, safe).squeeze(at) * of_target
    all_classes = -(logp * scale).sum(at) * valid.to(x.dtype)
    loss = (1 - label_smoothing) * hit + label_smoothing / count * all_classes
    return loss if reduction == "none" else loss.sum() if reduction == "sum" else loss.sum() / of_target.sum()


def arguments(args):
    """(positional, keyword) arguments of a tensor, a tuple (whose last element may be a dict of keywords), or a dict."""
    if isinstance(args, dict):
        return (), dict(args)
    if not isinstance(args, (tuple, list)):
        return (args,), {}
    if args and isinstance(args[-1], dict):
        return tuple(args[:-1]), dict(args[-1])
    return tuple(args), {}


def input_names(model, args, kwargs):
    """A name for each tensor: the module's own argument name where it is one tensor, else that with a number."""
    try:
        named = list(inspect.signature(model.forward).parameters.values())
    except (TypeError, ValueError):
        named = []
    plain = [p.name for p in named if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    names = []
    for i, value in enumerate(args):
        names += numbered(plain[i] if i < len(plain) else f"in{i}", value)
    for key, value in kwargs.items():
        names += numbered(key, value)
    return names


def numbered(name, value):
    """The names of the tensors in value."""
    if torch.is_tensor(value):
        return [name]
    count = sum(map(torch.is_tensor, pytree.tree_leaves(value)))
    return [f"{name}_{i}" for i in range(count)]


def results(out):
    """(names, tensors) of what a module returned: tensors, tuples, dicts and dataclasses such as those of transformers."""
    if torch.is_tensor(out):
        return ["output"], [out]
    items = out.items() if hasattr(out, "items") else ((f"output_{i}", x) for i, x in enumerate(out))
    names, tensors = [], []
    for name, value in items:
        if "past_key_values" in str(name) or value is None:
            continue  # a cache for generation has no part in training
        if torch.is_tensor(value):
            names.append(str(name))
            tensors.append(value)
        elif isinstance(value, (tuple, list, dict)):
            inner = [x for x in pytree.tree_leaves(value) if torch.is_tensor(x)]
            names += [f"{name}_{i}" for i in range(len(inner))]
            tensors += inner
    return names, tensors
