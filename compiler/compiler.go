// Package compiler takes an ONNX file through the whole of gtc: import, passes, code generation, build. It is
// what cmd/gtc's commands call; it prints nothing.
package compiler

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

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
	Source bool              // also keep the model and the options in the folder, so that it explains and exports itself
	Flags  map[string]string // as given, for the record in gtc.json
}

// Result is a compiled folder and what was learnt on the way.
type Result struct {
	Dir        string
	Module     *ir.Module
	Context    *pass.Context
	Manifest   *abi.Manifest
	Warnings   []string
	Parameters []*onnx.Parameter // the model's, with their roles

	LowerTime, BuildTime time.Duration // import and passes; writing and building
}

// InputError is a fault in what the user gave: the model, a flag, a folder. Nothing was done.
type InputError struct{ Err error }

// Error is the text of the fault.
func (e *InputError) Error() string { return e.Err.Error() }

// Unwrap gives the fault itself.
func (e *InputError) Unwrap() error { return e.Err }

// Input marks err as a fault of the user's input, unless it is one of gtc's own. nil stays nil.
func Input(err error) error {
	if err == nil || strings.Contains(err.Error(), "BUG:") {
		return err
	}
	return &InputError{err}
}

// Lower imports the model and runs all passes; nothing is written.
func Lower(o *Options) (*Result, error) {
	res := &Result{Dir: o.Out}
	return res, lower(o, res, func(*onnx.Model) error { return nil })
}

// Makers tells which C function, template or collective makes each stored value of a lowered module.
func (r *Result) Makers() (map[*ir.Value]string, error) {
	src, err := rank.Generate(r.Module, r.Context.Plan, "prog0", 0)
	if err != nil {
		return nil, err
	}
	return src.Makers, nil
}

// lower fills res and calls use while the model's file is open.
func lower(o *Options, res *Result, use func(m *onnx.Model) error) error {
	start := time.Now()
	model, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		return Input(err)
	}
	defer model.Close()
	m, err := model.Import()
	if err != nil {
		return Input(err)
	}
	c := &pass.Context{Module: m, Opt: &o.Pass}
	res.Module, res.Context, res.Warnings, res.Parameters = m, c, model.Warnings, model.Parameters()
	if err := passes.Run(c, passes.Table); err != nil {
		var told *ir.Error
		if errors.As(err, &told) && told.File == "" {
			told.File = model.Name
		}
		return Input(err)
	}
	for _, r := range c.Remarks {
		if text, ok := strings.CutPrefix(r.Text, "warning: "); ok {
			res.Warnings = append(res.Warnings, text)
		}
	}
	res.LowerTime = time.Since(start)
	return use(model)
}

// Run compiles the model into o.Out. Tensor data is copied out of the model's file, which may go away afterwards.
func Run(ctx context.Context, o *Options) (*Result, error) {
	res := &Result{Dir: o.Out}
	err := lower(o, res, func(m *onnx.Model) error {
		start := time.Now()
		if last := o.Pass.StopAfter; last != "" && res.Context.Plan.ArenaBytes == 0 {
			return Input(fmt.Errorf("--stop-after %s: there is no program to write yet; gtc opt and --dump show the module", last))
		}
		src, err := rank.Generate(res.Module, res.Context.Plan, "prog0", 0)
		if err != nil {
			return err
		}
		if res.Manifest, err = manifest(o, res.Context, src); err != nil {
			return err
		}
		if err := write(o, res, src); err != nil {
			return err
		}
		if o.Source {
			if err := keepSource(o, m); err != nil {
				return err
			}
		}
		if o.Build {
			err = build.Binaries(ctx, o.Out)
		}
		res.BuildTime = time.Since(start)
		return err
	})
	return res, err
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
		return Input(err)
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
