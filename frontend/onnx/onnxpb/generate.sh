#!/bin/sh
# Regenerates onnx.pb.go from onnx.proto. Needs protoc (3.21 or newer) on the PATH; the gogo plugin is built
# from the module version in go.mod. Two lines of the ONNX project's file are changed on the way, in a copy:
# raw_data becomes the custom type Bytes, which points into the mapped file instead of copying it.
set -eu
cd "$(dirname "$0")"
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
gogo=$(go list -m -f '{{.Dir}}' github.com/gogo/protobuf)
go build -o "$tmp/protoc-gen-gogofast" github.com/gogo/protobuf/protoc-gen-gogofast
sed -e 's|^package onnx;|package onnx;\nimport "gogoproto/gogo.proto";\noption go_package = "onnxpb";|' \
    -e 's|optional bytes raw_data = 9;|optional bytes raw_data = 9 [(gogoproto.customtype) = "Bytes"];|' \
    onnx.proto > "$tmp/onnx.proto"
PATH="$tmp:$PATH" protoc -I "$tmp" -I "$gogo" -I "$gogo/protobuf" --gogofast_out="$tmp" "$tmp/onnx.proto"
gofmt "$tmp/onnx.pb.go" > onnx.pb.go
