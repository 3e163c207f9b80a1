"""What to do about the failures of PyTorch's exporters that are met most: one sentence in place of a page."""

import contextlib
from unittest import mock

from torch.nn.utils import rnn

PACKED = (
    "the module packs its sequences (pack_padded_sequence), which no graph can hold: run the recurrent layer over the padded batch, and "
    "mask its results after the end of each sample, or give the loss targets of -100 there")
KNOWN = (  # (what a failure's text holds, what to do)
    (("GuardOnDataDependentSymNode", "data-dependent", "data dependent", "ynamic control flow"),
     "the module decides on the contents of a tensor (an if, a loop, .item(), a mask as an index), which no graph can: write it with "
     "torch.where, or decide outside of the module"),
    (("UnsupportedOperatorError", "DispatchError", "No ONNX function found", "ConversionError"),
     "an operation of the module does not exist in ONNX: write it with simpler ones"),
)


def of(name, failures, packs):
    """The message for a module that no exporter could write: advice where the cause is known, then what each exporter said."""
    text = "\n".join(failures)
    told = PACKED if packs else next((a for marks, a in KNOWN if any(m in text for m in marks)), "")
    if told:
        return f"{name} cannot be exported: {told}\n  " + "\n  ".join(f.splitlines()[0][:200] for f in failures)
    return "\n  ".join([f"{name} cannot be exported", *failures])


@contextlib.contextmanager
def watched():
    """A list that is not empty when PyTorch has made a PackedSequence inside the block."""
    made, new = [], rnn.PackedSequence.__new__

    def noted(cls, *args, **kwargs):
        made.append(cls)
        return new(cls, *args, **kwargs)

    with mock.patch.object(rnn.PackedSequence, "__new__", noted):
        yield made


def readable(line):
    """Whether a line of a message is prose: neither a graph of the exporter's nor a stack."""
    start = line.strip()
    return not start.startswith(("graph(", "%", "Graph:", "ExportedProgram", "class GraphModule", "Traceback", "# File:"))
