#!/bin/sh
# Builds gtc, compiles the CNN of this folder for two ranks, and trains it on MNIST:  examples/mnist/run.sh [flags of gtc run]
#
# It needs Go and a C compiler. GTC_OUT is the folder to compile into, gtc-out/cnn by default.
set -eu
cd "$(dirname "$0")/../.."
out=${GTC_OUT:-gtc-out/cnn}
mkdir -p "$(dirname "$out")"
go build -o bin/gtc ./cmd/gtc
bin/gtc compile examples/mnist/cnn.onnx -o "$out" --dp 2 --batch 32 --loss cross_entropy --optimizer adamw --lr 2e-3 \
	--weight-decay 0.01 --no-decay 1d --schedule cosine --total-steps 1410 --min-lr 2e-5
exec bin/gtc run "$out" --data examples/mnist/train.npz --eval-data examples/mnist/test.npz --epochs 5 "$@"
