package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx"
)

// inputFlags reads --dim, --batch-dim and --value into the options of the importer.
func (m *modelFlags) inputFlags() error {
	i := &m.opt.Import
	i.Dims, i.Shapes, i.Values = map[string]int{}, map[string][]int{}, map[string]string{}
	for _, d := range m.dims {
		name, text, ok := strings.Cut(d, "=")
		if !ok || name == "" {
			return fmt.Errorf("--dim %q: write NAME=N, or INPUT=4x16", d)
		}
		if n, err := strconv.Atoi(text); err == nil && n >= 0 {
			i.Dims[name] = n
			continue
		}
		dims, err := onnx.ParseShape(text)
		if err != nil {
			return fmt.Errorf("--dim %q: write NAME=N with N a number of 0 or more, or INPUT=4x16: %w", d, err)
		}
		i.Shapes[name] = dims
	}
	for _, d := range m.batchDims {
		name, text, ok := strings.Cut(d, "=")
		n, err := strconv.Atoi(text)
		if !ok || name == "" || err != nil {
			return fmt.Errorf("--batch-dim %q: write INPUT=N, the input and the dimension of its samples, counted from 0", d)
		}
		if i.BatchDims == nil {
			i.BatchDims = map[string]int{}
		}
		i.BatchDims[name] = n
	}
	for _, v := range m.values {
		name, text, ok := strings.Cut(v, "=")
		if !ok || name == "" || text == "" {
			return fmt.Errorf("--value %q: write NAME=3, or NAME=2,3", v)
		}
		i.Values[name] = text
	}
	return nil
}
