package trainstep

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/interp"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// squares is what models of the tests begin with: s, the squares of x times p, for a batch of B.
const squares = `func @forward(%x: f32[B,3], %p: f32[3,3] param) {
  %m = matmul %x, %p : f32[B,3]
  %s = mul %m, %m : f32[B,3]
`

// losses are endings that give out0, with the numbers of a batch written as {EXPRESSION of b}.
var losses = map[string]string{
	"sum":      `%r = reduce_sum %s {dims=[0,1]} : f32[1,1] ; %o = reshape %r : f32[]`,
	"mean":     `%r = reduce_sum %s {dims=[0,1]} : f32[1,1] ; %c = const {value=f32[1,1]({1/(3*b)})} : f32[1,1] ; %q = mul %r, %c : f32[1,1] ; %o = reshape %q : f32[]`,
	"quotient": `%r = reduce_sum %s {dims=[0,1]} : f32[1,1] ; %c = const {value=f32[1,1]({b})} : f32[1,1] ; %q = div %r, %c : f32[1,1] ; %o = reshape %q : f32[]`,
	"number":   `%r = reduce_sum %s {dims=[0,1]} : f32[1,1] ; %i = const {value=i64[1,1]({b})} : i64[1,1] ; %c = cast %i {to=f32} : f32[1,1] ; %q = mul %r, %c : f32[1,1] ; %o = reshape %q : f32[]`,
	"spread": `%e = const {value=f32[1,1]({1/b})} : f32[1,1] ; %t = reduce_sum %s {dims=[0]} : f32[1,3] ; %u = expand %e {dims=[1,3]} : f32[1,3] ; %a = mul %t, %u : f32[1,3] ; ` +
		`%v = expand %a {dims=[B,3]} : f32[B,3] ; %d = sub %s, %v : f32[B,3] ; %w = mul %d, %d : f32[B,3] ; %r = reduce_sum %w {dims=[0,1]} : f32[1,1] ; ` +
		`%c = const {value=f32[1,1]({1/(3*(b-1))})} : f32[1,1] ; %q = mul %r, %c : f32[1,1] ; %k = sqrt %q : f32[1,1] ; %o = reshape %k : f32[]`,
	"products": `%y = transpose %m {perm=[1,0]} : f32[3,B] ; %g = matmul %y, %m : f32[3,3] ; %h = mul %g, %g : f32[3,3] ; %r = reduce_sum %h {dims=[0,1]} : f32[1,1] ; %o = reshape %r : f32[]`,
	"greatest": `%r = reduce_max %s {dims=[0]} : f32[1,3] ; %l = reduce_min %m {dims=[0]} : f32[1,3] ; %t = mul %r, %l : f32[1,3] ; %u = reduce_sum %t {dims=[1]} : f32[1,1] ; %o = reshape %u : f32[]`,
	"softmax": `%y = transpose %m {perm=[1,0]} : f32[3,B] ; %g = matmul %m, %y : f32[B,B] ; %h = softmax %g {dim=1} : f32[B,B] ; %k = mul %h, %h : f32[B,B] ; ` +
		`%r = reduce_sum %k {dims=[0,1]} : f32[1,1] ; %o = reshape %r : f32[]`,
	"others": `%y = transpose %m {perm=[1,0]} : f32[3,B] ; %g = matmul %m, %y : f32[B,B] ; %i = iota {dims=[B], dim=0, dType=i64} : i64[B] ; %h = xent %g, %i {ignoreIndex=-100} : f32[B] ; ` +
		`%r = reduce_sum %h {dims=[0]} : f32[1] ; %c = const {value=f32[1](1.0)} : f32[1] ; %v = expand %c {dims=[B]} : f32[B] ; %n = reduce_sum %v {dims=[0]} : f32[1] ; ` +
		`%q = div %r, %n : f32[1] ; %o = reshape %q : f32[]`,
	"pairs": `%y = transpose %m {perm=[1,0]} : f32[3,B] ; %g = matmul %m, %y : f32[B,B] ; %k = mul %g, %g : f32[B,B] ; %r = reduce_sum %k {dims=[0,1]} : f32[1,1] ; ` +
		`%c = const {value=f32[1,1]({1/(b*b)})} : f32[1,1] ; %q = mul %r, %c : f32[1,1] ; %d = const {value=f32[1,1]({b*(b-1)})} : f32[1,1] ; %s2 = div %r, %d : f32[1,1] ; ` +
		`%a = add %q, %s2 : f32[1,1] ; %o = reshape %a : f32[]`,
	// What a sample is to itself is left out, so that the greatest of the real ones is far below those that fill the batch.
	"stable": `%y = transpose %m {perm=[1,0]} : f32[3,B] ; %g = matmul %m, %y : f32[B,B] ; %z = const {value=f32[1,1](-3000.0)} : f32[1,1] ; %zz = expand %z {dims=[B,B]} : f32[B,B] ; ` +
		`%gg = mul %g, %zz : f32[B,B] ; %r = reduce_max %gg {dims=[1]} : f32[B,1] ; %l = expand %r {dims=[B,B]} : f32[B,B] ; %d = sub %gg, %l : f32[B,B] ; %h = exp %d : f32[B,B] ; ` +
		`%n = reduce_sum %h {dims=[1]} : f32[B,1] ; %k = log %n : f32[B,1] ; %a = add %k, %r : f32[B,1] ; %b = reduce_sum %a {dims=[0,1]} : f32[1,1] ; %o = reshape %b : f32[]`,
	"places": `%i = iota {dims=[B,3], dim=0, dType=f32} : f32[B,3] ; %t = mul %s, %i : f32[B,3] ; %r = reduce_sum %t {dims=[0,1]} : f32[1,1] ; %o = reshape %r : f32[]`,
}

// model is @forward for a batch.
func model(t *testing.T, ending string, batch int) *ir.Module {
	t.Helper()
	b := float64(batch)
	for expression, v := range map[string]float64{"b": b, "1/b": 1 / b, "1/(b*b)": 1 / (b * b), "b*(b-1)": b * (b - 1), "1/(3*b)": 1 / (3 * b), "1/(3*(b-1))": 1 / (3 * (b - 1)), "sqrt b": math.Sqrt(b), "b//2": float64(batch / 2), "1+b%2": float64(1 + batch%2), "min(b,3)": min(b, 3)} {
		ending = strings.ReplaceAll(ending, "{"+expression+"}", fmt.Sprint(float32(v)))
	}
	text := strings.ReplaceAll(squares+ending+"\n  return out0=%o\n}", " ; ", "\n  ")
	m, err := ir.Parse(regexp.MustCompile(`\bB\b`).ReplaceAllString(text, strconv.Itoa(batch)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// train makes @step and @eval of a model.
func train(t *testing.T, loss, ending string, batch int) *pass.Context {
	t.Helper()
	c := &pass.Context{Module: model(t, ending, batch), Opt: &pass.Options{Loss: loss}, Pass: "trainstep",
		Larger: func(times int) (*ir.Func, error) { return model(t, ending, batch*times).Func("forward"), nil },
		Sized:  func(batch int) (*ir.Func, error) { return model(t, ending, batch).Func("forward"), nil }}
	checked := &pass.Context{Module: model(t, ending, batch), Opt: &pass.Options{Loss: loss, Check: true}, Pass: c.Pass, Larger: c.Larger, Sized: c.Sized}
	for _, x := range []*pass.Context{checked, c} {
		err := Run(x)
		if err == nil {
			err = x.Module.Verify()
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// TestMasked: a batch that is filled up has the loss of its real samples alone, in @step and @eval.
func TestMasked(t *testing.T) {
	for name, ending := range losses {
		sameAlone(t, name, "graph", ending)
	}
	// Numbers of the size of the batch change what a model gives, though samples do not meet.
	sameAlone(t, "number", "mse", `%c = const {value=f32[1,1]({b})} : f32[1,1] ; %e = expand %c {dims=[B,3]} : f32[B,3] ; %o = mul %s, %e : f32[B,3]`)
}

func sameAlone(t *testing.T, name, loss, ending string) {
	t.Helper()
	whole := train(t, loss, ending, 6)
	for real := 2; real <= 6; real++ {
		alone := train(t, loss, ending, real)
		for _, f := range []string{"step", "eval"} {
			if why := whole.CrossSample[f]; why != "" {
				t.Fatalf("%s: @%s leaves the batch out: %s", name, f, why)
			}
			want, got := meanLoss(t, alone.Module.Func(f), real), meanLoss(t, whole.Module.Func(f), real)
			if !(math.Abs(want-got) <= 1e-6*math.Abs(want)) || want == 0 {
				t.Errorf("%s: %d of 6 samples: @%s has a loss of %v, want %v", name, real, f, got, want)
			}
		}
	}
}

// meanLoss is the mean loss of a call whose first samples are real.
func meanLoss(t *testing.T, f *ir.Func, real int) float64 {
	t.Helper()
	args := map[string]*ir.Array{}
	for _, p := range f.Params {
		a := ir.NewArray(p.Type)
		for i := range a.F {
			a.F[i] = math.Sin(float64(i+1) * 1.7)
		}
		if p.Role == ir.Weight {
			for i := range a.F {
				a.F[i] = float64(min(1, max(0, real-i)))
			}
		}
		args[p.Name] = a
	}
	out, err := interp.Run(f, args)
	if err != nil {
		t.Fatal(err)
	}
	return out.Named["loss_sum"].F[0] / out.Named["count"].F[0]
}

// TestNotMasked: where it is not known what the model is for fewer samples, or where samples meet otherwise, the batch is left out.
func TestNotMasked(t *testing.T) {
	for ending, why := range map[string]string{
		`%r = reduce_sum %s {dims=[0,1]} : f32[1,1] ; %c = const {value=f32[1,1]({sqrt b})} : f32[1,1] ; %q = mul %r, %c : f32[1,1] ; %o = reshape %q : f32[]`:                                                  "the numbers of",
		`%r = reduce_prod %s {dims=[0,1]} : f32[1,1] ; %o = reshape %r : f32[]`:                                                                                                                                 "",
		`%r = reduce_sum %s {dims=[0,1]} : f32[1,1] ; %i = iota {dims=[B,3], dim=0, dType=f32} : f32[B,3] ; %j = reduce_prod %i {dims=[0,1]} : f32[1,1] ; %q = mul %r, %j : f32[1,1] ; %o = reshape %q : f32[]`: "",
	} {
		c := train(t, "graph", ending, 4)
		if c.CrossSample["step"] == "" || c.CrossSample["eval"] == "" {
			t.Errorf("%s: the batch is kept", ending)
		}
		told := ""
		for _, r := range c.Remarks {
			if strings.HasPrefix(r.Text, "what fills a batch up is not masked: ") {
				told = r.Text
			}
		}
		if (told == "") != (why == "") || !strings.Contains(told, why) {
			t.Errorf("%s: told %q, want %q", ending, told, why)
		}
	}
	for _, number := range []string{"b//2", "1+b%2", "min(b,3)"} { // lines through 4, 8 and 16 that 1, 2 and 3 do not lie on
		ending := `%c = const {value=f32[1,1]({NUMBER})} : f32[1,1] ; %r = reduce_sum %s {dims=[0,1]} : f32[1,1] ; %q = mul %r, %c : f32[1,1] ; %o = reshape %q : f32[]`
		if c := train(t, "graph", strings.ReplaceAll(ending, "NUMBER", number), 4); c.CrossSample["step"] == "" || c.CrossSample["eval"] == "" {
			t.Errorf("%s: the batch is kept", number)
		}
		ending = `%c = const {value=f32[1,1]({NUMBER})} : f32[1,1] ; %e = expand %c {dims=[B,3]} : f32[B,3] ; %o = mul %s, %e : f32[B,3]`
		if c := train(t, "mse", strings.ReplaceAll(ending, "NUMBER", number), 4); !strings.Contains(c.CrossSample["step"], "depends on the size of the batch") {
			t.Errorf("%s in a model: %q", number, c.CrossSample["step"])
		}
	}
	for _, ending := range []string{ // of integers nothing is less than any other
		`%i = cast %s {to=i64} : i64[B,3] ; %g = reduce_max %i {dims=[0,1]} : i64[1,1] ; %f = cast %g {to=f32} : f32[1,1] ; %r = reduce_sum %s {dims=[0,1]} : f32[1,1] ; %q = mul %r, %f : f32[1,1] ; %o = reshape %q : f32[]`,
	} {
		if c := train(t, "graph", ending, 4); c.CrossSample["step"] == "" {
			t.Errorf("%s: the batch is kept", ending)
		}
	}
	// A root of the batch is none of the numbers that are known for fewer samples; and algebra drops a number where it is 1.
	scaled := `%c = const {value=f32[1,1]({sqrt b})} : f32[1,1] ; %e = expand %c {dims=[B,3]} : f32[B,3] ; %t = mul %s, %e : f32[B,3] ; %o = neg %t : f32[B,3]`
	if c := train(t, "mse", scaled, 4); !strings.Contains(c.CrossSample["step"], "depends on the size of the batch") {
		t.Errorf("a root of the batch in a model: %q", c.CrossSample["step"])
	}
	dropped := &pass.Context{Module: model(t, `%o = neg %s : f32[B,3]`, 4), Opt: &pass.Options{Loss: "mse"}, Pass: "trainstep",
		Larger: func(times int) (*ir.Func, error) { return model(t, scaled, 4*times).Func("forward"), nil },
		Sized:  func(batch int) (*ir.Func, error) { return model(t, scaled, batch).Func("forward"), nil }}
	if err := Run(dropped); err != nil || !strings.Contains(dropped.CrossSample["eval"], "depends on the size of the batch") {
		t.Errorf("a number that is 1 in a model: %q, %v", dropped.CrossSample["eval"], err)
	}
	both := `%r = reduce_sum %s {dims=[0,1]} : f32[1,1] ; %g = reduce_prod %m {dims=[0,1]} : f32[1,1] ; %q = add %r, %g : f32[1,1] ; %o = reshape %q : f32[]`
	if c := train(t, "graph", both, 4); !strings.Contains(c.CrossSample["step"], "takes the product") {
		t.Errorf("the sum, which a mask would close, is told as why: %q", c.CrossSample["step"])
	}
	c := &pass.Context{Module: model(t, losses["mean"], 4), Opt: &pass.Options{Loss: "graph"}, Pass: "trainstep"}
	if err := Run(c); err != nil || c.CrossSample["step"] == "" {
		t.Errorf("the size of the batch is fixed, and it is kept: %v", err)
	}
}
