"""What is done to the ONNX model after the exporter: names, training forms, and the record of what each tensor is.

The record is in ModelProto.metadata_props, each value JSON; gtc's importer reads it and guesses nothing then:

    gtc.export      {"version": 1, "exporter": "dynamo", "torch": "2.15.0"}
    gtc.parameters  [names of the initializers that are trained]
    gtc.frozen      [names of the initializers that are parameters with requires_grad=False]
    gtc.buffers     [names of the initializers that are buffers; running statistics of batch normalisation among them]
    gtc.tied        {another name of a parameter or buffer: its name in the file}
    gtc.transient   [names of the buffers among these that the module's state dict leaves out (persistent=False)]
    gtc.unused      [parameters and buffers of the state dict that no result depends on and that the file therefore does not hold]
    gtc.padding     {name of an embedding's table: its padding row}
    gtc.loss        "graph" (the output is the loss), or the name of gtc's loss; absent: `gtc compile --loss` says

Every initializer that is in none of these lists is a constant. A BatchNormalization without training_mode=1 is one that the
module holds in evaluation mode: it keeps its statistics.
"""

import json
import os

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

LIMIT = 1 << 30  # bytes of weights that stay inside the file
BATCH = "batch"  # the open dimension's name


def finish(proto, flat, unused, report):
    """Puts names and training forms into the model and the record into its metadata; fills the report."""
    own, tied = names_of(flat)
    rename(proto, {i.name: own[i.name] for i in proto.graph.initializer if i.name in own})
    drop_prefix(proto, tied)
    detached(proto)
    report.inputs = [i.name for i in proto.graph.input]
    report.tied = {shown(a): shown(b) for a, b in tied.items()}
    held = {i.name for i in proto.graph.initializer}
    for name, p in flat.named_parameters():
        if shown(name) not in held:
            if unused is None or name in unused or not p.requires_grad:
                report.unused.append(shown(name))
            else:
                report.lost.append(f"parameter {shown(name)}: the exporter computed with it and kept only the result")
        elif p.requires_grad:
            report.parameters.append(shown(name))
        else:
            report.frozen.append(shown(name))
    report.buffers = [shown(n) for n, _ in flat.named_buffers() if shown(n) in held]
    report.tied = {a: b for a, b in report.tied.items() if b in held}
    kept = {n for n in flat.model.state_dict() if not n.endswith("num_batches_tracked")}  # this one PyTorch fills in
    report.unused += [n for n, _ in flat.model.named_buffers() if n in kept and n not in held]
    unread(proto, flat, report)
    check_values(proto, flat, report)
    report.padding = padding_rows(flat.model, held)
    batch_norms(proto, flat, report)
    dropouts(proto, flat, report)
    record(proto, flat, report)


def transient(model):
    """Names of the buffers that the module's state dict leaves out."""
    kept = set(model.state_dict(keep_vars=True))
    return [n for n, _ in model.named_buffers(remove_duplicate=False) if n not in kept]


def unread(proto, flat, report):
    """Reports inputs of which nothing reads the contents (their shape alone is none)."""
    read = {o.name for o in proto.graph.output}
    for g in subgraphs(proto.graph):
        read |= {o.name for o in g.output if g is not proto.graph}
        for node in reversed(g.node):
            if node.op_type not in ("Shape", "Size"):
                read |= set(node.input)
    report.lost += [f"input {n}: nothing in the file reads it" for n in flat.names if n not in read]


def padding_rows(model, held):
    """{table: row} of the embeddings with a padding_idx."""
    first = {id(p): n for n, p in reversed(list(model.named_parameters(remove_duplicate=False)))}
    rows = {first[id(m.weight)]: m.padding_idx for m in model.modules() if isinstance(m, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and m.padding_idx is not None and id(m.weight) in first}
    return {n: row for n, row in rows.items() if n in held}


def names_of(flat):
    """({any name of a parameter or buffer: the name that goes into the file}, {tied name: its first name}), both with prefixes."""
    own, tied, first = {}, {}, {}
    for pairs in (flat.named_parameters(remove_duplicate=False), flat.named_buffers(remove_duplicate=False)):
        for name, tensor in pairs:
            keep = first.setdefault(id(tensor), name)
            own[name] = shown(keep)
            if keep != name:
                tied[name] = keep
    return own, tied


def shown(name):
    """The module's own name: without the prefix of the module that holds it here."""
    return name.removeprefix("model.")


def subgraphs(graph):
    """The graph and all graphs inside its nodes."""
    yield graph
    for node in graph.node:
        for a in node.attribute:
            for g in ([a.g] if a.HasField("g") else []) + list(a.graphs):
                yield from subgraphs(g)


def rename(proto, names):
    """Renames values; initializers that come to the same name (tied ones that the exporter wrote twice) become one."""
    graph = proto.graph
    names = {a: b for a, b in names.items() if a != b or sum(c == b for c in names.values()) > 1}
    wanted, taken = set(names.values()), set()
    for g in subgraphs(graph):
        taken |= {o for n in g.node for o in n.output} | {i.name for i in g.input}
    clash = {v: fresh(v, taken | wanted) for v in taken if v in wanted and v not in names}
    names = {**names, **clash}
    for g in subgraphs(graph):
        for node in g.node:
            node.input[:] = [names.get(x, x) for x in node.input]
            node.output[:] = [names.get(x, x) for x in node.output]
        for v in (*g.input, *g.output, *g.value_info):
            v.name = names.get(v.name, v.name)
    seen, kept = set(), []
    for i in graph.initializer:
        i.name = names.get(i.name, i.name)
        if i.name not in seen:
            kept.append(i)
        seen.add(i.name)
    if len(kept) < len(graph.initializer):
        del graph.initializer[:]
        graph.initializer.extend(kept)


def fresh(name, taken):
    """A name like `name` that nothing has."""
    k = 1
    while f"{name}_{k}" in taken:
        k += 1
    return f"{name}_{k}"


def drop_prefix(proto, tied=()):
    """Removes the prefix of the wrapping module from what the dynamo exporter records of scopes and names; tied ones get their first name."""
    for props in (proto.metadata_props, proto.graph.metadata_props):
        for p in props:
            for other in tied:
                p.value = p.value.replace(f"target='{other}'", f"target='{tied[other]}'")
            p.value = p.value.replace("target='model.", "target='")
    for g in subgraphs(proto.graph):
        for node in g.node:
            for p in node.metadata_props:
                if p.key == "pkg.torch.onnx.name_scopes":
                    p.value = p.value.replace("'model.", "'").replace("['', 'model', ", "['', ")


def detached(proto):
    """Stopped gradients as Identity nodes with a mark in their metadata, which every tool can run."""
    for g in subgraphs(proto.graph):
        for node in g.node:
            if node.domain == "gtc" and node.op_type == "Detach":
                node.domain, node.op_type = "", "Identity"
                del node.attribute[:]
                mark = node.metadata_props.add()
                mark.key, mark.value = "gtc.detach", "true"
                proto.ir_version = max(proto.ir_version, 10)  # the first whose nodes have metadata
    kept = [o for o in proto.opset_import if o.domain != "gtc"]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)


def name_batch(proto):
    """Gives the open dimension of the inputs, which the dynamo exporter calls s77 or the like, the name `batch`."""
    old = {d.dim_param for i in proto.graph.input for d in i.type.tensor_type.shape.dim if d.dim_param}
    if len(old) != 1:
        return
    (name,) = old
    for g in subgraphs(proto.graph):
        for v in (*g.input, *g.output, *g.value_info):
            for d in v.type.tensor_type.shape.dim:
                if d.dim_param:
                    d.dim_param = d.dim_param.replace(name, BATCH)


def check_values(proto, flat, report):
    """Initializers must hold what the module holds; buffers that moved while the exporter traced go back."""
    tensors = {shown(n): t for n, t in (*flat.named_parameters(), *flat.named_buffers())}
    for i in proto.graph.initializer:
        t = tensors.get(i.name)
        if t is None or not i.HasField("raw_data") or t.dtype not in (torch.float32, torch.float64):
            continue
        value = numpy_helper.to_array(i)
        if list(value.shape) != list(t.shape):
            report.lost.append(f"{i.name}: the file holds {list(value.shape)}, but the module {list(t.shape)}")
        elif i.name in report.parameters and not np.array_equal(value, t.detach().cpu().numpy(), equal_nan=True):
            report.lost.append(f"{i.name}: the file holds other values than the module")
        elif i.name in report.buffers:
            i.raw_data = t.detach().cpu().numpy().tobytes()


def constant(graph, name, value):
    """A node before all others that makes a constant; its name."""
    node = helper.make_node("Constant", [], [name], name=name, value=numpy_helper.from_array(np.asarray(value), name))
    graph.node.insert(0, node)
    return name


def attribute(node, name, default=None):
    """The value of an attribute."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), default)


def set_attribute(node, name, value):
    """Replaces an attribute."""
    kept = [a for a in node.attribute if a.name != name]
    del node.attribute[:]
    node.attribute.extend([*kept, helper.make_attribute(name, value)])


def recorded(node):
    """The PyTorch call that the dynamo exporter records for a node."""
    return next((p.value for p in node.metadata_props if p.key == "pkg.torch.onnx.fx_node"), "")


def batch_norms(proto, flat, report):
    """Batch normalisation into training form, where the module has it so."""
    modules = dict(flat.model.named_modules())
    present = set()
    for g in subgraphs(proto.graph):
        for node in g.node:
            if node.op_type != "BatchNormalization":
                continue
            owner = modules.get(node.input[3].rpartition(".")[0])
            present.add(owner)
            trains = owner.training if owner is not None and hasattr(owner, "running_mean") else called_in_training(node)
            if trains and attribute(node, "training_mode", 0) == 0:
                set_attribute(node, "training_mode", 1)
                base = node.output[0]
                del node.output[1:]
                node.output.extend([f"{base}.running_mean", f"{base}.running_var"])
            if trains and owner is not None and getattr(owner, "momentum", 0.1) is None:
                report.lost.append(f"momentum=None of {name_of(modules, owner)}: statistics become a running, not a cumulative, average")
            elif trains and owner is not None and isinstance(getattr(owner, "momentum", None), float):
                set_attribute(node, "momentum", 1 - owner.momentum)
    for name, m in modules.items():
        if isinstance(m, torch.nn.modules.batchnorm._BatchNorm) and m.track_running_stats and m.training and m not in present:
            if any(p in report.parameters for p in (f"{name}.weight", f"{name}.bias")) and f"{name}.running_mean" not in report.buffers:
                report.notes.append(f"{name}: batch normalisation without its running statistics, which stay as they are")


def statistics(proto):
    """The names of what batch normalisations read as their running statistics."""
    return {n for g in subgraphs(proto.graph) for node in g.node if node.op_type == "BatchNormalization" for n in node.input[3:5]}


def name_of(modules, module):
    """The name of a module."""
    return next((n for n, m in modules.items() if m is module), "?")


def called_in_training(node):
    """Whether the recorded call of a batch normalisation had its training flag set."""
    call = recorded(node)
    if "batch_norm" not in call or "args = (" not in call:
        return attribute(node, "training_mode", 0) == 1
    return "True" in call.split("args = (", 1)[1].split(")", 1)[0].split(", ")[5:6]


def dropouts(proto, flat, report):
    """Dropout into training form; reports dropout that the exporter left out."""
    found = 0
    for g in subgraphs(proto.graph):
        for node in list(g.node):
            if node.op_type != "Dropout":
                continue
            found += 1
            if len(node.input) < 3 or not node.input[2]:
                while len(node.input) < 2:
                    node.input.append("")
                del node.input[2:]
                node.input.append(constant(proto.graph, fresh("training_mode", values(proto)), np.array(True)))
    if found:
        return
    active = [n for n, m in flat.model.named_modules() if isinstance(m, torch.nn.modules.dropout._DropoutNd) and m.training and m.p > 0]
    if active:
        report.lost.append(f"dropout of {', '.join(active)}: the exporter left it out")


def values(proto):
    """All names of values."""
    return {o for g in subgraphs(proto.graph) for n in g.node for o in n.output} | {i.name for i in proto.graph.initializer}


def record(proto, flat, report):
    """Writes the gtc.* keys."""
    entries = {
        "gtc.export": {"version": 1, "exporter": report.exporter, "torch": torch.__version__.split("+")[0]},
        "gtc.parameters": report.parameters,
        "gtc.frozen": report.frozen,
        "gtc.buffers": report.buffers,
        "gtc.tied": report.tied,
        "gtc.transient": [n for n in report.buffers if n in transient(flat.model)],
        "gtc.unused": report.unused,
    }
    if report.padding:
        entries["gtc.padding"] = report.padding
    if report.loss:
        entries["gtc.loss"] = report.loss
    for key, value in entries.items():
        p = proto.metadata_props.add()
        p.key, p.value = key, json.dumps(value)


def save(proto, path):
    """Writes the model; weights beyond LIMIT go into path.data, which replaces an older one."""
    size = sum(len(i.raw_data) for i in proto.graph.initializer)
    data = os.path.basename(path) + ".data"
    beside = os.path.join(os.path.dirname(path) or ".", data)
    if size > LIMIT:
        if os.path.exists(beside):
            os.remove(beside)  # onnx would append to it
        onnx.save(proto, path, save_as_external_data=True, all_tensors_to_one_file=True, location=data)
    else:
        onnx.save(proto, path)
