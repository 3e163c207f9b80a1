"""Writes frontend/onnx/internal/walk/attributes.tsv: the attributes that each operator has in some version, by the schemas of the package onnx.

tests/torch/run.sh onnx_attributes.py, from the root of the repository, with bin/gtc built.
"""

import pathlib
import subprocess

import onnx

known = subprocess.run(["bin/gtc", "ops", "--onnx"], capture_output=True, text=True, check=True).stdout.splitlines()[1:]
known = {line.split()[0] for line in known if line.strip()}
attributes = {}
for schema in onnx.defs.get_all_schemas_with_history():
    name = f"{schema.domain}.{schema.name}" if schema.domain else schema.name
    attributes.setdefault(name, set()).update(schema.attributes)
lines = ["\t".join([name, *sorted(attributes[name])]) for name in sorted(known) if name in attributes]
pathlib.Path("frontend/onnx/internal/walk/attributes.tsv").write_text("\n".join(lines) + "\n")
