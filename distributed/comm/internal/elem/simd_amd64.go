package elem

// The compiler emits one float operation at a time, a quarter of what memory
// can feed. SSE2, which every amd64 has, does four or eight, with the same
// results bit for bit. Lengths given to the assembly are multiples of its step.

// addF32 sets d[i] = a[i] + b[i] for n floats, a multiple of 16.
//
//go:noescape
func addF32(d, a, b *float32, n int)

// widenBF16 converts n bf16, a multiple of 8, to f32.
//
//go:noescape
func widenBF16(d *float32, s *uint16, n int)

// narrowBF16 rounds n f32, a multiple of 8, to bf16.
//
//go:noescape
func narrowBF16(d *uint16, s *float32, n int)

// addFloats is add for float32.
func addFloats(d, a, b []float32) {
	a, b = a[:len(d)], b[:len(d)]
	if n := len(d) &^ 15; n > 0 {
		addF32(&d[0], &a[0], &b[0], n)
		d, a, b = d[n:], a[n:], b[n:]
	}
	for i := range d {
		d[i] = a[i] + b[i]
	}
}

// widenFast converts leading bf16 and returns how many.
func widenFast(d []float32, s []uint16) int {
	n := len(s) &^ 7
	if n > 0 {
		_ = d[n-1]
		widenBF16(&d[0], &s[0], n)
	}
	return n
}

// narrowFast rounds leading floats to bf16 and returns how many.
func narrowFast(d []uint16, s []float32) int {
	n := len(s) &^ 7
	if n > 0 {
		_ = d[n-1]
		narrowBF16(&d[0], &s[0], n)
	}
	return n
}
