"""What changes the gradients of a module and has no form in a file: an exporter writes what is computed forward, and nothing else."""

import torch
from torch import nn


def functions(outs):
    """Names of the autograd functions with a backward of their own that results hang on, but for PyTorch's."""
    todo, seen, names = [o.grad_fn for o in outs if o.grad_fn is not None], set(), set()
    while todo:
        node = todo.pop()
        if node in seen:
            continue
        seen.add(node)
        forward = getattr(node, "_forward_cls", None)
        if forward is not None and not forward.__module__.startswith("torch."):
            names.add(forward.__name__)
        todo += [n for n, _ in node.next_functions if n is not None]
    return sorted(names)


def lost(model, own):
    """Lines for the report: own functions of autograd, hooks on gradients, and options of embeddings."""
    lines = [f"gradient of {n}: the module has one of its own, the file that of what {n} computes" for n in own]
    for name, p in model.named_parameters():
        if p._backward_hooks or getattr(p, "_post_accumulate_grad_hooks", None):
            lines.append(f"parameter {name}: the module calls hooks on its gradient, the file does not")
    for name, m in model.named_modules():
        if m._backward_hooks or m._backward_pre_hooks:
            lines.append(f"{name or 'the module'}: it calls hooks on gradients, the file does not")
        if not isinstance(m, (nn.Embedding, nn.EmbeddingBag)):
            continue
        if m.max_norm is not None:
            lines.append(f"{name}: max_norm={m.max_norm} shortens rows whenever they are read, in the file they keep their length")
        if m.scale_grad_by_freq:
            lines.append(f"{name}: scale_grad_by_freq divides gradients by how often a row is read, in the file they are whole")
    return lines
