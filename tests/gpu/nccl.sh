#!/usr/bin/env bash
# The nccl backend on a machine with two GPUs or more and libnccl.so.2: the conformance suite, a rank for each GPU.
#
#	tests/gpu/nccl.sh          # GTC_LONG=1 adds buffers of 100 MB
#
# GTC_NCCL_LIB and GTC_CUDA_LIB can name the libraries' files. Without a GPU the tests fail and say what is missing; the same
# code runs on a stand-in in "go test ./distributed/comm/nccl".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
GTC_TEST_NCCL=1 go test -count=1 -v -timeout 10m ./distributed/comm/nccl
