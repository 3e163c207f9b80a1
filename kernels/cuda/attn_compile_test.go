package cuda

import "github.com/gtc-compiler/gtc/ir/dtype"

// attnCall is a call of AttnFwd or AttnBwd on [B,S,H,D] operands.
func attnCall(name string, t, mask dtype.DType, batch, heads, kvHeads, seq, d, dv, causal int) Call {
	strides := func(heads, d int) []int { return []int{seq * heads * d, d, heads * d} }
	q, k, v, o := strides(heads, d), strides(kvHeads, d), strides(kvHeads, dv), strides(heads, dv)
	ints := []int{batch, heads, kvHeads, seq, seq, d, dv}
	for _, s := range [][]int{q, k, v, o, {causal, 0, 0, 0, seq}} {
		ints = append(ints, s...)
	}
	c := Call{Name: name, Ints: ints, Floats: []float64{0.125}, Types: []dtype.DType{t, t, t, mask, t, dtype.F32}, Compute: "f32"}
	if name == "AttnBwd" {
		for _, s := range [][]int{o, q, k, v} {
			c.Ints = append(c.Ints, s...)
		}
		c.Types = append(c.Types, t, t, t, t)
	}
	return c
}

func attnDropout(c Call) Call {
	c.Name, c.Ints, c.Floats, c.Types = c.Name+"Dropout", append(c.Ints, 7), append(c.Floats, 0.1), append(c.Types, dtype.I64, dtype.I64)
	return c
}

// Of the forms of attention, every other is compiled forward, the rest backward; with GTC_LONG=1 all are both.
func init() {
	for n, name := range []string{"AttnFwd", "AttnBwd"} {
		forms := []Call{
			attnCall(name, dtype.BF16, no, 8, 16, 16, 2048, 128, 128, 1),
			attnCall(name, dtype.BF16, dtype.F32, 8, 16, 16, 2048, 128, 128, 0),
			attnCall(name, dtype.BF16, no, 32, 12, 12, 1024, 64, 64, 1),
			attnCall(name, dtype.BF16, dtype.BF16, 32, 12, 12, 197, 64, 64, 0),
			attnCall(name, dtype.F16, no, 8, 32, 8, 2048, 96, 96, 1),
			attnCall(name, dtype.BF16, no, 8, 32, 8, 2048, 80, 80, 1),
			attnCall(name, dtype.BF16, no, 1, 8, 1, 4096, 256, 256, 1),
			attnCall(name, dtype.BF16, no, 1, 16, 16, 4096, 192, 128, 1),
			attnDropout(attnCall(name, dtype.BF16, no, 32, 12, 12, 1024, 64, 64, 1)),
			attnDropout(attnCall(name, dtype.F16, dtype.F16, 8, 16, 16, 1024, 128, 128, 0)),
			attnCall(name, dtype.F32, no, 8, 12, 12, 1024, 64, 64, 1),
			attnCall(name, dtype.F32, dtype.F32, 1, 4, 4, 1000, 200, 200, 0),
		}
		for i, c := range forms {
			if long || i%2 == n {
				sizes = append(sizes, c)
			}
		}
	}
}
