"""What an export kept of a module, and what it could not keep."""

import dataclasses


@dataclasses.dataclass
class Report:
    """The outcome of gtc.export.

    `lost` lists what the module does and the file does not: training it differs from training the module. `notes` are
    choices that were made and change nothing in what is computed. Names are those of the module.
    """

    path: str
    exporter: str = ""  # dynamo or torchscript
    parameters: list = dataclasses.field(default_factory=list)  # trained
    frozen: list = dataclasses.field(default_factory=list)  # parameters with requires_grad=False
    buffers: list = dataclasses.field(default_factory=list)
    tied: dict = dataclasses.field(default_factory=dict)  # other names of parameters -> the name in the file
    padding: dict = dataclasses.field(default_factory=dict)  # tables of embeddings -> the row of their padding_idx
    unused: list = dataclasses.field(default_factory=list)  # parameters and buffers that no result depends on
    inputs: list = dataclasses.field(default_factory=list)  # names, targets of a loss in the graph last
    batch_dims: dict = dataclasses.field(default_factory=dict)  # inputs whose samples do not lie along the first dimension -> that dimension
    loss: str = ""  # what `gtc compile` takes when --loss is not given
    lost: list = dataclasses.field(default_factory=list)
    notes: list = dataclasses.field(default_factory=list)

    @property
    def ok(self):
        """Whether nothing was lost."""
        return not self.lost

    def __str__(self):
        n = len(self.parameters)
        head = f"{self.path}: {n} trained parameter{'s' * (n != 1)}, {len(self.frozen)} frozen, {len(self.buffers)} buffers ({self.exporter} exporter)"
        lines = [head, f"  inputs: {', '.join(self.inputs)}"]
        if self.batch_dims:
            lines.append("  samples lie along " + ", ".join(f"dimension {d} of {n}" for n, d in self.batch_dims.items()))
        if self.loss:
            lines.append(f"  loss: {self.loss}")
        lines += [f"  tied: {a} is {b}" for a, b in self.tied.items()]
        lines += [f"  padding: row {row} of {table}" for table, row in self.padding.items()]
        if self.unused:
            lines.append(f"  unused, left out: {', '.join(self.unused)}")
        lines += [f"  note: {n}" for n in self.notes]
        lines += [f"  LOST: {n}" for n in self.lost]
        return "\n".join(lines)
