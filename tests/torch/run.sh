#!/bin/sh
# Runs one of the Python tools of this folder:  tests/torch/run.sh TOOL.py [arguments]
#
# The tools make fixtures and compare against PyTorch; nothing that gtc builds or runs needs them. Their packages live
# in a virtual environment outside the tree: $GTC_VENV, or gtc/venv in the user's cache. GTC_VENV may name an existing one.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
venv=${GTC_VENV:-${XDG_CACHE_HOME:-$HOME/.cache}/gtc/venv}
packages="numpy torch onnx onnxscript onnxruntime safetensors"

if [ ! -x "$venv/bin/python" ]; then
	python3 -m venv "$venv"
fi
if ! "$venv/bin/python" -c 'import numpy, torch, onnx, onnxscript, onnxruntime, safetensors' 2>/dev/null; then
	# shellcheck disable=SC2086
	"$venv/bin/python" -m pip install --quiet --upgrade $packages
fi
if [ $# -eq 0 ]; then
	echo "usage: tests/torch/run.sh TOOL.py [arguments]; tools:" >&2
	(cd "$here" && ls ./*.py) >&2
	exit 2
fi
case $1 in
*families.py | *huggingface.py | *test_lora.py)
	# Without their dependencies: torchvision wants one version of torch, and what is used of it here runs with the newest.
	if ! "$venv/bin/python" -c 'import torchvision, timm, transformers, peft' 2>/dev/null; then
		"$venv/bin/python" -m pip install --quiet --no-deps torchvision timm
		"$venv/bin/python" -m pip install --quiet transformers peft pillow pyyaml
	fi ;;
esac
case $1 in
*/*) tool=$1 ;;
*) tool=$here/$1 ;;
esac
shift
PYTHONPATH=$here exec "$venv/bin/python" "$tool" "$@"
