package codegentest

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/codegen/rank"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// RunCUDA does with jobs what RunMany does, for the CUDA target: their kernels, generated and hand-made, are compiled for this
// processor with all checks and run on the job's arena. The test is skipped where there is no C++ compiler.
func RunCUDA(t testing.TB, jobs []*Job, o pass.Options) {
	t.Helper()
	o.Target, o.Arch = pass.CUDA, []string{pass.Host}
	var cases []*cudatest.Case
	var ran []*Job
	for i, j := range jobs {
		if j.prepare(rank.Target{Options: &o}); j.Err != nil {
			continue
		}
		cases = append(cases, j.cudaCase(fmt.Sprintf("%d", i)))
		ran = append(ran, j)
	}
	cudatest.RunAll(t, cases)
	for i, j := range ran {
		c := cases[i]
		if j.Err = c.Err; j.Err == nil && c.Status != math.MaxInt64 {
			j.Err = fmt.Errorf("a kernel refuses row %d of its operands", c.Status)
		}
		for _, x := range j.plan.Copies["forward"] {
			copy(c.Buffers[0][x.To:x.To+x.Bytes], c.Buffers[0][x.From:x.From+x.Bytes])
		}
		if j.Err == nil {
			j.Out, j.Err = j.resultsIn(c.Buffers[0])
		}
	}
}

// cudaCase is the job as a plan: its arena is the one buffer.
func (j *Job) cudaCase(name string) *cudatest.Case {
	plan := &cuda.Plan{}
	for _, l := range j.source.Launches["forward"] {
		k := j.source.Functions[l.Kernel]
		own := cuda.Kernel{Name: name, Text: strings.Replace(k.Text, k.Name+"(", "NAME(", 1), Include: k.Include, Grid: l.Grid, Block: l.Block,
			Shared: l.Shared, Table: l.Table, Family: k.Family}
		own.Name, _, _ = strings.Cut(k.Name, "__")
		for _, a := range l.Args {
			if a >= 0 {
				own.Args = append(own.Args, cuda.Ref{Arg: 0, Offset: a})
			} else {
				own.Args = append(own.Args, cuda.Ref{Arg: a})
			}
		}
		plan.Kernels = append(plan.Kernels, own)
	}
	c := &cudatest.Case{Name: name, Plan: plan, Buffers: [][]byte{j.image()}, Spans: j.spans()}
	for _, r := range j.Module.Funcs[0].Results {
		if at := r.Value.Offset; r.Updates == nil && at >= 0 {
			c.Results = append(c.Results, cudatest.Typed{Offset: at, Elems: r.Value.Type.Elems(), DType: r.Value.Type.DType})
		}
	}
	return c
}

// spans are where the arena has values, and its workspace: kernels have no business between.
func (j *Job) spans() []cudatest.Span {
	spans := []cudatest.Span{{From: j.plan.Workspace, To: j.plan.Workspace + j.plan.WorkBytes}}
	add := func(values []*ir.Value) {
		for _, v := range values {
			if v.Offset >= 0 {
				spans = append(spans, cudatest.Span{From: v.Offset, To: v.Offset + v.Type.Bytes()})
			}
		}
	}
	f := j.Module.Funcs[0]
	add(f.Params)
	for _, op := range f.Ops {
		add(op.Out)
	}
	for _, c := range j.plan.Copies[f.Name] {
		spans = append(spans, cudatest.Span{From: c.From, To: c.From + c.Bytes}, cudatest.Span{From: c.To, To: c.To + c.Bytes})
	}
	return spans
}
