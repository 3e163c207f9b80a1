package compiler

import (
	"context"
	"fmt"
	"time"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/codegen/rank"
	"github.com/gtc-compiler/gtc/compiler/internal/proof"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Several compiles one model with several optimizers into one folder, o.Out: programs that share their kernels, and one
// binary. The manifest lists all ranks' programs for the first optimizer, then for the next; abi.ProgramVariable
// tells the ranks which optimizer to use.
func Several(ctx context.Context, o *Options, optimizers []pass.Optimizer) ([]*Result, error) {
	var results []*Result
	for _, opt := range optimizers {
		one := *o
		one.Pass.Optimizer = opt
		model, res, err := lower(ctx, &one)
		if model != nil {
			defer model.Close()
		}
		if err != nil {
			return nil, err
		}
		results = append(results, res)
	}
	unlock, warning, err := lockOut(o.Out)
	if err != nil {
		return nil, Input(err)
	}
	defer unlock()
	results[0].warn(warning)
	start := time.Now()
	if err := generate(ctx, o, results...); err != nil {
		return nil, err
	}
	err = binaries(ctx, o, results[0].Manifest.Ranks)
	results[0].BuildTime = time.Since(start)
	return results, err
}

// generate makes code of the results, which share a package, and writes the folder.
func generate(ctx context.Context, o *Options, results ...*Result) error {
	c, err := kernelCompiler(o)
	if err != nil {
		return err
	}
	src, err := rank.Generate("prog0", rank.Target{Options: results[0].Context.Opt, Compiler: c}, programs(results...)...)
	if err != nil {
		return err
	}
	device, err := compileKernels(ctx, c, src, o.Pass.Reproducible)
	if err != nil {
		return err
	}
	m, err := manifest(o, src, results...)
	if err != nil {
		return err
	}
	if m.GPU = device; c != nil {
		results[0].warn(c.Warning())
	}
	if err := ctx.Err(); err != nil { // nothing is written of what was broken off
		return err
	}
	proven, err := proof.Check(m)
	if err != nil {
		return fmt.Errorf("BUG: the ranks' programs do not fit together: %w", err)
	}
	for _, r := range results {
		r.Manifest, r.Proof = m, proven
	}
	return write(o, &build.Folder{Programs: []map[string][]byte{src.Files}, Ranks: m.Ranks, On: o.Pass.On()}, results...)
}

// programs are those of the results, one for each stage of a pipeline, in the manifest's order.
func programs(results ...*Result) []rank.Program {
	var list []rank.Program
	for _, r := range results {
		for _, c := range r.Context.Programs() {
			p := rank.Program{Module: c.Module, Plan: c.Plan, Index: len(list), Strict: c.Opt.Reproducible}
			if p.Index > 0 {
				p.Name = fmt.Sprintf("P%d", p.Index)
			}
			list = append(list, p)
		}
	}
	return list
}
