"""A module of any signature as a module of tensors: what the exporters take."""

import inspect

import torch
from torch import nn
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
        self.tensors = tuple(leaves[i] for i in self._places) + tuple(targets)
        self.names = input_names(model, args, kwargs) + (["target"] if len(targets) == 1 else [f"target{i}" for i in range(len(targets))])
        self.outputs = []  # names, known after the first call
        self.training = model.training

    def forward(self, *tensors):
        given = tensors[: len(tensors) - self._targets]
        leaves = list(self._fixed)
        for place, tensor in zip(self._places, given):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        self.outputs, outs = results(self.model(*args, **kwargs))
        (loss,) = self._criterion
        if loss is None:
            return tuple(outs)
        self.outputs = ["loss"]
        return (loss(outs[0], *tensors[len(given) :]),)


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
