"""The PyTorch side of gtc: exports modules for training, runs the compiler, and puts trained weights back.

    gtc.export(model, args, "model.onnx")     an ONNX file that trains as the module would
    gtc.record(model, "model.onnx")           what a file of PyTorch's own exporters does not tell: what is frozen, padding rows
    gtc.compile(model, args, "gtc-out", …)    export, then `gtc compile`
    gtc.run("gtc-out", data="train.npz", …)   `gtc run`
    gtc.load_state(model, "gtc-out")          the trained weights, back in the module
"""

from .binary import GtcError, compile, run
from .export import ExportError, export
from .record import record
from .report import Report
from .state import StateError, load_state

__all__ = ["ExportError", "GtcError", "Report", "StateError", "compile", "export", "load_state", "record", "run"]
