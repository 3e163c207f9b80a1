package pass_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/ops"
	"github.com/gtc-compiler/gtc/passes/pass"
)

const chain = `func @forward(%x: f32[2]) {
  %a = neg %x : f32[2]
  %b = neg %a : f32[2]
  %c = add %b, %a : f32[2]
  %unread = neg %b : f32[2]
  return out0=%c
}
`

// parsed is a context on chain; limit is how many rewrites May allows, -1 for all.
func parsed(t *testing.T, limit int) *pass.Context {
	t.Helper()
	m, err := ir.Parse(chain)
	if err != nil {
		t.Fatal(err)
	}
	c := &pass.Context{Module: m, Opt: &pass.Options{}, Pass: "p"}
	if limit >= 0 {
		c.Opt.Rewrites = &limit
	}
	return c
}

// negations drops a double negation, and writes any other as a difference from zero.
func negations(b *ir.Builder, op *ir.Op) []*ir.Value {
	if op.Def != ops.NegDef {
		return nil
	}
	if inner := op.In[0].Op; inner != nil && inner.Def == ops.NegDef {
		return []*ir.Value{inner.In[0]}
	}
	return []*ir.Value{ops.Sub(b, ops.Zeros(b, op.Out[0].Type), op.In[0])}
}

// TestRewrite: new ops take place, name and location of the old; operands are those replaced before; what is not read is gone.
func TestRewrite(t *testing.T) {
	c := parsed(t, -1)
	f := c.Module.Funcs[0]
	f.Ops[0].Loc = ir.Loc{Node: "first"}
	if n := c.Rewrite(f, negations); n != 3 {
		t.Errorf("%d ops were replaced", n)
	}
	want := `func @forward(%x: f32[2]) {
  %const = const {value=f32[1](0.0)} : f32[1]
  %expand = expand %const {dims=[2]} : f32[2]
  %a = sub %expand, %x : f32[2]
  %const.1 = const {value=f32[1](0.0)} : f32[1]
  %expand.1 = expand %const.1 {dims=[2]} : f32[2]
  %b = sub %expand.1, %a : f32[2]
  %c = add %b, %a : f32[2]
  return out0=%c
}
`
	if got := f.String(); got != want {
		t.Errorf("it became\n%s", got)
	}
	if at := f.Ops[2].Loc; at.Node != "first" || at.Derived != "p" {
		t.Errorf("the location is %+v", at)
	}
	if err := c.Module.Verify(); err != nil {
		t.Error(err)
	}
}

// TestImprove: with a limit the first so many ops are replaced, and the others stay as they are, with what was emitted for
// them taken back; the last that was done is told.
func TestImprove(t *testing.T) {
	for limit, want := range []string{"neg neg add", "const expand sub neg add", "const expand sub const expand sub add"} {
		c := parsed(t, limit)
		f := c.Module.Funcs[0]
		n := c.Improve(f, func(b *ir.Builder, op *ir.Op) []*ir.Value {
			out := negations(b, op)
			if out != nil {
				c.Remark(op.Out[0], "is written otherwise")
			}
			return out
		})
		var kinds []string
		for _, op := range f.Ops {
			kinds = append(kinds, op.Def.Name)
		}
		if got := strings.Join(kinds, " "); got != want || n != limit || len(c.Remarks) != limit {
			t.Errorf("limit %d: %d replaced, %d remarks: %s, want %s", limit, n, len(c.Remarks), got, want)
		}
		if err := c.Module.Verify(); err != nil {
			t.Errorf("limit %d: %v", limit, err)
		}
		if c.Asked.Total != 3 || c.Asked.Last.Number != limit {
			t.Errorf("limit %d: %d were asked for, the last is %s", limit, c.Asked.Total, c.Asked.Last)
		}
	}
	c := parsed(t, 2)
	c.Improve(c.Module.Funcs[0], negations)
	if got := c.Asked.Last.String(); !strings.HasPrefix(got, "rewrite 2, of pass p: %b: neg becomes sub, at ") {
		t.Errorf("the last is told as %s", got)
	}
}

// TestMay counts without a limit, too, and programs that share a count go on with it.
func TestMay(t *testing.T) {
	three := 3
	a := &pass.Context{Opt: &pass.Options{Rewrites: &three}, Pass: "a"}
	for i := range 2 {
		if !a.May(nil, "the %dth", i) {
			t.Errorf("rewrite %d is not done", i)
		}
	}
	b := &pass.Context{Opt: a.Opt, Pass: "b", Asked: a.Asked}
	if !b.May(nil, "the third") || b.May(nil, "the fourth") || a.May(nil, "the fifth") {
		t.Error("the limit does not hold for both")
	}
	if a.Asked.Total != 5 || a.Asked.Last.String() != "rewrite 3, of pass b: the third" {
		t.Errorf("%d, %s", a.Asked.Total, a.Asked.Last)
	}
	free := &pass.Context{Opt: &pass.Options{}}
	if !free.May(nil, "") || free.Asked.Total != 1 {
		t.Error("without a limit one is refused, or not counted")
	}
}

// TestFacts: names of facts, the first file dims that count, and the programs of a compilation.
func TestFacts(t *testing.T) {
	if got := (pass.Core | pass.HasGrad | pass.Planned).String(); got != "Core+HasGrad+Planned" {
		t.Error(got)
	}
	for bit := pass.Typed; bit <= pass.Planned; bit <<= 1 {
		if bit.String() == "" || strings.Contains(bit.String(), "+") {
			t.Errorf("fact %b is called %q", bit, bit)
		}
	}
	c := &pass.Context{}
	c.SetFileDims("w", []int{2, 3})
	c.SetFileDims("w", []int{6})
	c.SetCrossSample("step", "there")
	c.SetNoise("eval", "dropout")
	if len(c.FileDims["w"]) != 2 || c.CrossSample["step"] != "there" || c.Noise["eval"] != "dropout" {
		t.Errorf("%v %v %v", c.FileDims, c.CrossSample, c.Noise)
	}
	if list := c.Programs(); len(list) != 1 || list[0] != c {
		t.Error("a program without stages is another")
	}
	c.Stages = []*pass.Context{{}, {}}
	if list := c.Programs(); len(list) != 2 || list[1] != c.Stages[1] {
		t.Error("the stages are not the programs")
	}
	for _, tc := range []struct {
		r    pass.Remark
		want string
	}{{pass.Remark{Pass: "p", Text: "did"}, "p: did"}, {pass.Remark{Pass: "p", Value: "v", Text: "did"}, "p: %v did"}} {
		if tc.r.String() != tc.want {
			t.Error(tc.r)
		}
	}
}

// TestGlob: * is any text, ? one character, and all else itself, whatever it means in an expression.
func TestGlob(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"h.*.w", "h.0.attn.w", true}, {"h.*.w", "hx0.w", false}, {"h.?", "h.1", true}, {"h.?", "h.10", false}, {"*", "a\nb/c", true}, {"", "a", false},
		{"a+(b)[0]", "a+(b)[0]", true}, {"a|b", "a", false}, {`a\*`, `a\bc`, true}, {"\xff*", "\ufffdx", true},
	} {
		if got := regexp.MustCompile("(?s)^" + pass.Glob(c.pattern) + "$").MatchString(c.name); got != c.want {
			t.Errorf("%q matches %q: %v", c.pattern, c.name, got)
		}
	}
}
