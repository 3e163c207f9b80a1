package main

import (
	"context"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/rank"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest/carry"
	"github.com/gtc-compiler/gtc/passes/fuse"
	"github.com/gtc-compiler/gtc/passes/memplan"
	"github.com/gtc-compiler/gtc/passes/multitensor"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/passes/schedule"
)

// timing is a function whose kernels are timed by themselves, as rival.py times PyTorch's for the same, and its work: the
// operations, or the bytes that it cannot but move. Values of whole numbers and of optimizer state stay zero.
type timing struct {
	name         string
	build        func(b *ir.Builder)
	flops, bytes float64
}

// timings are those of the benchmark table, or small ones for a try on this processor.
func timings(small bool) []timing {
	batch, heads, seq, depth, elems, rows, classes, shapes := 8, 16, 2048, 128, 1<<29, 8192, 50304, weights(12, 768, 50304, 1024)
	if small {
		batch, heads, seq, depth, elems, rows, classes, shapes = 1, 2, 64, 32, 1<<12, 32, 500, weights(1, 16, 100, 8)
	}
	params := 0
	for _, s := range shapes {
		params += ir.T(dtype.F32, s...).Elems()
	}
	q := ir.T(dtype.BF16, batch, heads, seq, depth)
	a := ops.AttentionAttrs{Causal: true, Scale: 1 / math.Sqrt(float64(depth)), Layout: "bhsd"}
	name := fmt.Sprintf("%dx%dx%dx%d causal", batch, heads, seq, depth)
	work := 2 * float64(q.Elems()) * float64(seq) // two products, half of each
	return []timing{
		{"attention forward " + name, func(b *ir.Builder) {
			out, lse := ops.Attention(b, a, input(b, "q", q), input(b, "k", q), input(b, "v", q), nil)
			b.Result("out", out)
			b.Result("lse", lse)
		}, work, 0},
		{"attention backward " + name, func(b *ir.Builder) {
			lse := b.Param("lse", ir.T(dtype.F32, batch, heads, seq), ir.State)
			dq, dk, dv := ops.AttentionGrad(b, a, input(b, "q", q), input(b, "k", q), input(b, "v", q), nil, input(b, "out", q), lse, input(b, "dout", q))
			b.Result("dq", dq)
			b.Result("dk", dk)
			b.Result("dv", dv)
		}, 2.5 * work, 0},
		{fmt.Sprintf("GELU forward, %d elements of bf16", elems), func(b *ir.Builder) {
			b.Result("y", ops.Gelu(b, input(b, "x", ir.T(dtype.BF16, elems)), true))
		}, 0, 4 * float64(elems)},
		{fmt.Sprintf("AdamW, %d parameters", params), func(b *ir.Builder) { adamw(b, shapes) }, 0, 28 * float64(params)},
		{fmt.Sprintf("cross entropy forward+backward %dx%d of bf16", rows, classes), func(b *ir.Builder) {
			target, weight := b.Param("target", ir.T(dtype.I64, rows), ir.Target), input(b, "weight", ir.T(dtype.F32, rows))
			loss, grad := ops.XentBoth(b, input(b, "logits", ir.T(dtype.BF16, rows, classes)), target, weight, -100)
			b.Result("loss", loss)
			b.Result("grad", grad)
		}, 0, 4 * float64(rows) * float64(classes)},
	}
}

func input(b *ir.Builder, name string, t ir.Type) *ir.Value { return b.Param(name, t, ir.Input) }

// weights are the shapes of a GPT's parameters, the head's being those of the embedding.
func weights(layers, width, vocab, seq int) [][]int {
	list := [][]int{{vocab, width}, {seq, width}, {width}, {width}}
	for range layers {
		list = append(list, []int{width, 3 * width}, []int{3 * width}, []int{width, width}, []int{width, 4 * width}, []int{4 * width}, []int{4 * width, width})
		for range 6 {
			list = append(list, []int{width})
		}
	}
	return list
}

// adamw updates parameters of those shapes as passes/optimizer does, with the scalars of some step as constants.
func adamw(b *ir.Builder, shapes [][]int) {
	average := func(old, x *ir.Value, beta float64) *ir.Value {
		return ops.Add(b, ops.MulScalar(b, old, beta), ops.MulScalar(b, x, 1-beta))
	}
	for i, s := range shapes {
		t := ir.T(dtype.F32, s...)
		p, g := b.Param(fmt.Sprintf("p%d", i), t, ir.Param), input(b, fmt.Sprintf("g%d", i), t)
		m, v := b.Param(fmt.Sprintf("m%d", i), t, ir.State), b.Param(fmt.Sprintf("v%d", i), t, ir.State)
		m1, v1 := average(m, g, 0.9), average(v, ops.Square(b, g), 0.999)
		root := ops.Add(b, ops.MulScalar(b, ops.Sqrt(b, v1), 1.5), ops.ScalarLike(b, p, 1e-8))
		b.Update(m, m1)
		b.Update(v, v1)
		b.Update(p, ops.Sub(b, ops.MulScalar(b, p, 1-1e-6), ops.MulScalar(b, ops.Div(b, m1, root), 1e-4)))
	}
}

// micro compiles them: a file for each, for kernels -bench.
func (k *kit) micro(ctx context.Context) error {
	for i, x := range timings(k.archs[0] == pass.Host) {
		g, err := k.timed(x)
		if err == nil {
			err = k.compile(ctx, g)
		}
		if err == nil {
			word, _, _ := strings.Cut(x.name, ",")
			err = carry.Write(filepath.Join(k.dir, "kernels", fmt.Sprintf("%d-%s.bench", i, strings.ReplaceAll(word, " ", "_"))), g)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", x.name, err)
		}
		k.say("%s: %d launches", x.name, len(g.Cases[0].Launches))
	}
	return k.binary(ctx, "kernels", "./tests/gpu/kernels")
}

// timed makes the function's kernels and the one case that launches them, without operands.
func (k *kit) timed(x timing) (*carry.Group, error) {
	f := &ir.Func{Name: "forward"}
	x.build(ir.NewBuilder(f))
	c := &pass.Context{Module: &ir.Module{Funcs: []*ir.Func{f}}, Opt: &pass.Options{Target: pass.CUDA, Arch: k.archs, Precision: "bf16"}}
	for _, run := range []func(*pass.Context) error{fuse.Run, schedule.Run, memplan.Run, multitensor.Run} {
		if err := run(c); err != nil {
			return nil, err
		}
	}
	src, err := rank.Generate("prog", rank.Target{Options: c.Opt}, rank.Program{Module: c.Module, Plan: c.Plan})
	if err != nil {
		return nil, err
	}
	if n := len(c.Plan.Copies["forward"]); n > 0 {
		return nil, fmt.Errorf("BUG: %d results are copied, which is not timed", n)
	}
	g := &carry.Group{Name: x.name}
	for _, n := range src.Functions {
		g.Kernels = append(g.Kernels, carry.Kernel{Name: n.Name, Text: n.Text, Family: n.Family, Include: n.Include})
	}
	one := carry.Case{Name: x.name, Size: c.Plan.ArenaBytes, Launches: src.Launches["forward"], Flops: x.flops, Bytes: x.bytes}
	for _, p := range f.Params {
		if p.Role == ir.Input || p.Role == ir.Param {
			one.Filled = append(one.Filled, carry.Span{From: p.Offset, To: p.Offset + p.Type.Bytes()})
		}
	}
	g.Cases = []carry.Case{one}
	return g, nil
}
