package onnx

import (
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/arrays"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/domains"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/flow"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/rules/layers"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
)

// Every operator that gtc imports. Adding one means a row in the file of its family and, when it is no composition of what
// ir/ops has, an op there.
func init() {
	rows := slices.Concat(arrays.Rows, layers.Rows, flow.Rows, domains.Rows)
	walk.Define(append(rows, domains.Aliases(rows)...))
}
