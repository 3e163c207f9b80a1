// Package compiler takes an ONNX file through the whole of gtc: import, passes, code generation, build. It is
// what cmd/gtc's commands call; it prints nothing.
package compiler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	gtc "github.com/gtc-compiler/gtc"
	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/codegen/rank"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// Options is everything that a compilation depends on.
type Options struct {
	Model  string            // path of the ONNX file
	Import onnx.Options      // dims, roles
	Pass   pass.Options      // loss, optimizer, parallelism
	Out    string            // output folder
	Build  bool              // also build bin/rank-N
	Flags  map[string]string // as given, for the record in gtc.json
}

// Result is a compiled folder and what was learnt on the way.
type Result struct {
	Dir      string
	Module   *ir.Module
	Context  *pass.Context
	Manifest *abi.Manifest
	Warnings []string
}

// Lower imports the model and runs all passes; nothing is written.
func Lower(o *Options) (*Result, error) {
	model, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		return nil, err
	}
	defer model.Close()
	m, err := model.Import()
	if err != nil {
		return nil, err
	}
	c := &pass.Context{Module: m, Opt: &o.Pass}
	if err := passes.Run(c, passes.Table); err != nil {
		return nil, err
	}
	return &Result{Module: m, Context: c, Warnings: model.Warnings}, nil
}

// Run compiles the model into o.Out. Tensor data is copied out of the model's file, which may go away afterwards.
func Run(ctx context.Context, o *Options) (*Result, error) {
	model, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		return nil, err
	}
	defer model.Close()
	m, err := model.Import()
	if err != nil {
		return nil, err
	}
	c := &pass.Context{Module: m, Opt: &o.Pass}
	if err := passes.Run(c, passes.Table); err != nil {
		return nil, err
	}
	res := &Result{Dir: o.Out, Module: c.Module, Context: c, Warnings: model.Warnings}
	src, err := rank.Generate(c.Module, c.Plan, "prog0", 0)
	if err != nil {
		return nil, err
	}
	if res.Manifest, err = manifest(o, c, src); err != nil {
		return nil, err
	}
	if err := write(o, res, src); err != nil {
		return nil, err
	}
	if o.Build {
		return res, build.Binaries(ctx, o.Out)
	}
	return res, nil
}

// write puts the folder on disk, weights included.
func write(o *Options, res *Result, src *rank.Source) error {
	text, err := json.MarshalIndent(res.Manifest, "", " ")
	if err != nil {
		return err
	}
	f := &build.Folder{Dir: o.Out, Programs: []map[string][]byte{src.Files}, Ranks: res.Manifest.RankProgram, Manifest: append(text, '\n'),
		Runtime: gtc.Runtime, Version: gtc.Version}
	if err := build.Write(f); err != nil {
		return err
	}
	return safetensors.WriteFile(filepath.Join(o.Out, abi.Weights), weights(res.Module), nil)
}

// fileSum is the SHA-256 of a file, in hex.
func fileSum(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
