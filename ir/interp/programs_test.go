package interp_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// One step of y = (x·w)²·v, loss = sum of y², both weights moved against their gradients by sgd; then the same on
// two stages of two ranks each, for two micro-batches in flight.
const wholeStep = `mesh @m = [dp=2]
func @step(%x: f32[8,3], %w: f32[3,4] param, %v: f32[4,2] param) {
  %h = matmul %x, %w : f32[8,4]
  %a = mul %h, %h : f32[8,4]
  %y = matmul %a, %v : f32[8,2]
  %q = mul %y, %y : f32[8,2]
  %s = reduce_sum %q {dims=[0,1]} : f32[1,1]
  %d_y = add %y, %y : f32[8,2]
  %d_v = matmul %a, %d_y {transA=true} : f32[4,2]
  %d_a = matmul %d_y, %v {transB=true} : f32[8,4]
  %h2 = add %h, %h : f32[8,4]
  %d_h = mul %h2, %d_a : f32[8,4]
  %d_w = matmul %x, %d_h {transA=true} : f32[3,4]
  %w.next = sub %w, %d_w : f32[3,4]
  %v.next = sub %v, %d_v : f32[4,2]
  return out0=%y, loss_sum=%s, %w <- %w.next, %v <- %v.next
}`

const firstStage = `mesh @m = [pp=2, dp=2, mb=2]
func @fwd.0(%x: f32[2,3]{dp+mb,_}, %w: f32[3,4] param, %stash/x: f32[2,3] stash, %stash/h: f32[2,4] stash) {
  %h = matmul %x, %w : f32[2,4]{dp+mb,_}
  %a = mul %h, %h : f32[2,4]{dp+mb,_}
  %t = send %a {axis="pp", peer=1, tag="a"} : u8[0]
  return %stash/x <- %x, %stash/h <- %h
}
func @bwd.0(%stash/x: f32[2,3] stash, %stash/h: f32[2,4] stash, %accum/d_w: f32[3,4]{_,_; partial=dp} state) {
  %d_a = recv {axis="pp", peer=1, tag="d_a", dType=f32, dims=[2,4]} : f32[2,4]
  %h2 = add %stash/h, %stash/h : f32[2,4]
  %d_h = mul %h2, %d_a : f32[2,4]
  %d_w = matmul %stash/x, %d_h {transA=true} : f32[3,4]{_,_; partial=dp}
  %next = add %accum/d_w, %d_w : f32[3,4]{_,_; partial=dp}
  return %accum/d_w <- %next
}
func @step(%w: f32[3,4] param, %accum/d_w: f32[3,4]{_,_; partial=dp} state) {
  %d_w = all_reduce %accum/d_w {axis="dp", op="sum"} : f32[3,4]
  %w.next = sub %w, %d_w : f32[3,4]
  %z = sub %w, %w : f32[3,4]
  return %w <- %w.next, %accum/d_w <- %z
}`

const secondStage = `mesh @m = [pp=2, dp=2, mb=2]
func @fwd.0(%v: f32[4,2] param, %stash/a: f32[2,4] stash, %stash/y: f32[2,2] stash, %accum/s: f32[1,1]{_,_; partial=dp} state) {
  %a = recv {axis="pp", peer=0, tag="a", dType=f32, dims=[2,4]} : f32[2,4]
  %y = matmul %a, %v : f32[2,2]{dp+mb,_}
  %q = mul %y, %y : f32[2,2]
  %s = reduce_sum %q {dims=[0,1]} : f32[1,1]
  %next = add %accum/s, %s : f32[1,1]
  return out0=%y, %stash/a <- %a, %stash/y <- %y, %accum/s <- %next
}
func @bwd.0(%v: f32[4,2] param, %stash/a: f32[2,4] stash, %stash/y: f32[2,2] stash, %accum/d_v: f32[4,2]{_,_; partial=dp} state) {
  %d_y = add %stash/y, %stash/y : f32[2,2]
  %d_v = matmul %stash/a, %d_y {transA=true} : f32[4,2]
  %d_a = matmul %d_y, %v {transB=true} : f32[2,4]
  %t = send %d_a {axis="pp", peer=0, tag="d_a"} : u8[0]
  %next = add %accum/d_v, %d_v : f32[4,2]
  return %accum/d_v <- %next
}
func @step(%v: f32[4,2] param, %accum/s: f32[1,1]{_,_; partial=dp} state, %accum/d_v: f32[4,2]{_,_; partial=dp} state) {
  %s, %d_v = all_reduce %accum/s, %accum/d_v {axis="dp", op="sum"} : f32[1,1], f32[4,2]
  %v.next = sub %v, %d_v : f32[4,2]
  %z = sub %v, %v : f32[4,2]
  %o = sub %s, %s : f32[1,1]
  return loss_sum=%s, %v <- %v.next, %accum/s <- %o, %accum/d_v <- %z
}`

// actions reads F0 B1 S: fwd.0 of micro-batch 0, bwd.0 of 1, the step. The slot is the micro-batch.
func actions(text string) []abi.Action {
	var list []abi.Action
	for _, w := range strings.Fields(text) {
		a := abi.Action{Func: map[byte]string{'F': "fwd.0", 'B': "bwd.0", 'S': "step"}[w[0]]}
		if len(w) > 1 {
			fmt.Sscan(w[1:], &a.Micro)
			a.Slot = a.Micro
		}
		list = append(list, a)
	}
	return list
}

func pipeline(first, second, order0, order1 string) []interp.Program {
	return []interp.Program{{Module: ir.MustParse(first), Actions: actions(order0), Slots: 2}, {Module: ir.MustParse(second), Actions: actions(order1), Slots: 2}}
}

// TestPipeline runs two stages under several schedules against the whole program, over three steps.
func TestPipeline(t *testing.T) {
	whole := ir.MustParse(wholeStep).Funcs[0]
	args := interp.Random(whole, 1)
	for _, order := range [][2]string{{"F0 F1 B0 B1 S", "F0 F1 B0 B1 S"}, {"F0 F1 B0 B1 S", "F0 B0 F1 B1 S"}, {"F0 B0 F1 B1 S", "F0 B0 F1 B1 S"}} {
		if err := interp.EquivalentPrograms(pipeline(firstStage, secondStage, order[0], order[1]), whole, args, 3); err != nil {
			t.Errorf("%v: %v", order, err)
		}
	}
}

// TestPipelineFaults: what is wrong in a set of programs is an error that names the ops, never a hang.
func TestPipelineFaults(t *testing.T) {
	whole := ir.MustParse(wholeStep).Funcs[0]
	args := interp.Random(whole, 1)
	const good = "F0 F1 B0 B1 S"
	wrong := func(text, old, new string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("there is no %s", old)
		}
		return strings.Replace(text, old, new, 1)
	}
	for name, c := range map[string]struct {
		programs []interp.Program
		want     []string
	}{
		"cycle": {pipeline(firstStage, secondStage, "B0 F0 F1 B1 S", good), []string{"reads stash"}},
		"wait": {pipeline(firstStage, secondStage, good, "F0 F1 B0 S"), []string{
			`no rank can go on`, `rank 0: recv{Axis:pp Peer:1 Tag:d_a DType:f32 Dims:[2 4]}() in @bwd.0, micro-batch 1,`, `rank 2: is done`}},
		"lost": {pipeline(firstStage, secondStage, "F0 F1 B0 S", good), []string{"a message is never received: rank", `send{Axis:pp Peer:0 Tag:d_a}(f32[2,4]) in @bwd.0, micro-batch 1`}},
		"tag":  {pipeline(wrong(firstStage, `tag="a"`, `tag="b"`), secondStage, good, good), []string{"not what its receiver expects", "send{Axis:pp Peer:1 Tag:b}", "recv{Axis:pp Peer:0 Tag:a"}},
		"type": {pipeline(firstStage, wrong(secondStage, `dims=[2,4]} : f32[2,4]`, `dims=[2,4,1]} : f32[2,4,1]`), good, good), []string{"Dims:[2 4 1]"}},
	} {
		err := interp.EquivalentPrograms(c.programs, whole, args, 1)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		}
	}
}

// TestStashSlots: a slot that another micro-batch has taken is found out.
func TestStashSlots(t *testing.T) {
	p := pipeline(firstStage, secondStage, "F0 F1 B0 B1 S", "F0 F1 B0 B1 S")
	for i := range p {
		for k := range p[i].Actions {
			p[i].Actions[k].Slot = 0
		}
	}
	whole := ir.MustParse(wholeStep).Funcs[0]
	err := interp.EquivalentPrograms(p, whole, interp.Random(whole, 1), 1)
	if err == nil || !strings.Contains(err.Error(), "@bwd.0 of micro-batch 0 reads stash") {
		t.Errorf("one slot for two micro-batches: %v", err)
	}
	p = pipeline(firstStage, secondStage, "F0 F1 B0 B1 S", "F0 F1 B0 B1 S")
	p[1].Slots = 1
	if _, err := interp.RunPrograms(p, interp.Random(whole, 1), 1); err == nil || !strings.Contains(err.Error(), "slot 1, but there is room for 1") {
		t.Errorf("slot 1 of 1: %v", err)
	}
}

// TestMismatch: ranks that issue different collectives are told which.
func TestMismatch(t *testing.T) {
	a := ir.MustParse(`mesh @m = [pp=2]
func @step(%x: f32[2] param) { %s = all_reduce %x {axis="pp", op="sum"} : f32[2] return s=%s }`)
	b := ir.MustParse(`mesh @m = [pp=2]
func @step(%x: f32[2] param) { %s = all_reduce %x {axis="pp", op="max"} : f32[2] return s=%s }`)
	x := map[string]*ir.Array{"x": {Type: ir.T(dtype.F32, 2), F: []float64{1, 2}}}
	_, err := interp.RunPrograms([]interp.Program{{Module: a}, {Module: b}}, x, 1)
	for _, want := range []string{"collective 0 over pp differs", "rank 0: all_reduce{Axis:pp Op:sum}(f32[2]) in @step", "rank 1: all_reduce{Axis:pp Op:max}(f32[2]) in @step"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestAllToAll moves a split from columns to rows.
func TestAllToAll(t *testing.T) {
	m := ir.MustParse(`mesh @m = [tp=2]
func @step(%x: f32[4,1]{_,tp} param) { %y = all_to_all %x {axis="tp", split=0, join=1, size=2} : f32[2,2]{tp,_} return y=%y }`)
	x := map[string]*ir.Array{"x": {Type: ir.T(dtype.F32, 4, 2), F: []float64{0, 1, 2, 3, 4, 5, 6, 7}}}
	s, err := interp.RunPrograms([]interp.Program{{Module: m}}, x, 1)
	if err != nil {
		t.Fatal(err)
	}
	y, err := s.Result("y", false)
	if err != nil {
		t.Fatal(err)
	}
	want(t, "y", y, x["x"].F...)
	want(t, "rank 1's", s.Calls(1)[0].Out.Named["y"], 4, 5, 6, 7)
}
