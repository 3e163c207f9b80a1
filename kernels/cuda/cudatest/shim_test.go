package cudatest

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/kernels/cuda"
)

// one makes a case of one kernel; body is that of NAME, with parameters params.
func one(name string, blocks, threads, shared int, params, body string, buffers ...[]byte) *Case {
	k := cuda.Kernel{Name: name, Grid: [3]int{blocks, 1, 1}, Block: [3]int{threads, 1, 1}, Shared: shared,
		Text: fmt.Sprintf("extern \"C\" __global__ void __launch_bounds__(%d) NAME(%s) {\nusing namespace gtc;\n%s\n}", threads, params, body)}
	for i := range buffers {
		k.Args = append(k.Args, cuda.Ref{Arg: i})
	}
	return &Case{Name: name, Plan: &cuda.Plan{Kernels: []cuda.Kernel{k}}, Buffers: buffers}
}

func runAll(t *testing.T, cases ...*Case) {
	t.Helper()
	RunAll(t, cases)
	for _, c := range cases {
		if c.Err != nil {
			t.Error(c.Err)
		}
	}
}

func floats(n int) []byte { return make([]byte, 4*n) }

func TestRounding(t *testing.T) {
	all, r := make([]float64, 1<<16), rand.New(rand.NewPCG(1, 2))
	var narrow [2]*Case
	for k, d := range []dtype.DType{dtype.BF16, dtype.F16} {
		for i := range all {
			all[i] = float64(i)
		}
		name := []string{"bf16", "f16"}[k]
		narrow[k] = one(name, 256, 256, 0, "const gtc::u16* x, float* wide, const float* y, gtc::u16* narrow, gtc::u32* pair", fmt.Sprintf(`
int i = blockIdx.x * 256 + threadIdx.x;
wide[i] = to_float(%[1]s{x[i]});
narrow[i] = from_float<%[1]s>(y[i]).bits;
float lo, hi;
unpack2<%[1]s>(pack2<%[1]s>(y[i], y[i ^ 1]), lo, hi);
pair[i] = from_float<%[1]s>(lo).bits | u32(from_float<%[1]s>(hi).bits) << 16;`, name),
			Bytes(dtype.U16, all...), floats(1<<16), nil, make([]byte, 2<<16), floats(1<<16))
		y := make([]float64, 1<<16)
		for i := range y {
			y[i] = float64(math.Float32frombits(r.Uint32()))
			if i%2 == 0 { // near a number of the type, or halfway between two
				y[i] = Numbers(d, Bytes(dtype.U16, float64(i)))[0] * (1 + float64(i%8-4)/4096)
			}
		}
		narrow[k].Buffers[2] = Bytes(dtype.F32, y...)
	}
	runAll(t, narrow[0], narrow[1])
	for k, d := range []dtype.DType{dtype.BF16, dtype.F16} {
		wide, y, got, pair := Numbers(dtype.F32, narrow[k].Buffers[1]), Numbers(dtype.F32, narrow[k].Buffers[2]),
			Numbers(d, narrow[k].Buffers[3]), Numbers(d, narrow[k].Buffers[4])
		for i := range all {
			if want := Numbers(d, Bytes(dtype.U16, float64(i)))[0]; !alike(wide[i], want) {
				t.Fatalf("%s %04x is %g, want %g", d, i, wide[i], want)
			}
			if want := Numbers(d, Bytes(d, y[i]))[0]; !alike(got[i], want) || !alike(pair[2*i], want) || !alike(pair[2*(i^1)+1], want) {
				t.Fatalf("%g as %s is %g, in a pair %g and %g, want %g", y[i], d, got[i], pair[2*i], pair[2*(i^1)+1], want)
			}
		}
	}
}

func alike(a, b float64) bool { return a == b || a != a && b != b }

func TestExchange(t *testing.T) {
	c := one("exchange", 1, 64, 0, "float* f, gtc::i64* n, gtc::u32* b", `
int t = threadIdx.x, l = lane_id();
f[t] = shfl_xor(float(t), 5);
f[64 + t] = shfl_down(float(t), 3);
f[128 + t] = shfl_up(float(t), 3);
f[192 + t] = shfl(float(t), (l * 7) % 32);
n[t] = shfl_xor(i64(t) << 40, 1);
b[t] = warp_ballot(t % 3 == 0);
f[256 + t] = warp_sum(float(t));
f[320 + t] = warp_max(t == 40 ? quiet_nan() : float(t));`, floats(384), make([]byte, 8*64), floats(64))
	reduce := one("reduce", 2, 256, 0, "const float* x, float* y", `
GTC_SHARED(float, scratch, [32]);
int i = blockIdx.x * 256 + threadIdx.x;
y[i] = block_sum<256>(x[i], scratch) + 1000 * block_max<256>(x[i], scratch);`, Bytes(dtype.F32, ramp(512)...), floats(512))
	runAll(t, c, reduce)
	f, n, b := Numbers(dtype.F32, c.Buffers[0]), Numbers(dtype.I64, c.Buffers[1]), Numbers(dtype.U32, c.Buffers[2])
	for i := range 64 {
		l, w := i%32, i/32*32
		down, up := i+3, i-3
		if l+3 > 31 {
			down = i
		}
		if l < 3 {
			up = i
		}
		ballot := 0.0
		for k := range 32 {
			if (w+k)%3 == 0 {
				ballot += float64(int64(1) << k)
			}
		}
		want := []float64{float64(i ^ 5), float64(down), float64(up), float64(w + l*7%32), float64(w*32 + 496), float64(w + 31)}
		got := []float64{f[i], f[64+i], f[128+i], f[192+i], f[256+i], f[320+i]}
		for k := range want {
			if got[k] != want[k] && !(k == 5 && w == 32 && got[k] != got[k]) {
				t.Errorf("thread %d, result %d: %g, want %g", i, k, got[k], want[k])
			}
		}
		if n[i] != float64(int64(i^1)<<40) || b[i] != ballot {
			t.Errorf("thread %d: %g and %g", i, n[i], b[i])
		}
	}
	for i, got := range Numbers(dtype.F32, reduce.Buffers[1]) {
		if want := []float64{255*128 + 255000, 255*128 + 256*256 + 511000}[i/256]; got != want {
			t.Fatalf("sum and maximum, thread %d: %g, want %g", i, got, want)
		}
	}
}

func ramp(n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(i)
	}
	return x
}

func TestAtomics(t *testing.T) {
	c := one("atomics", 64, 256, 0, "float* f, gtc::i64* n, gtc::u32* u, double* d", `
int i = blockIdx.x * 256 + threadIdx.x;
atomic_add(f, 1.0f);
atomic_add(d, 0.5);
atomic_add(n, i64(i));
atomic_min(n + 1, i64(-i));
atomic_max(n + 2, i64(i) << 33);
GTC_SHARED(u32, last, );
GTC_SHARED(u32, count, );
if (threadIdx.x == 0) {
	count = 0;
	fence();
	last = atomic_inc(u) == gridDim.x - 1;
}
sync();
atomic_add(&count, 1u);
sync();
if (last && threadIdx.x == 0) {
	u[1] = load_volatile(u);
	u[2] = count;
	u[3] = atomic_cas(u + 4, 7, 9);
	u[5] = atomic_exchange(u + 4, 11);
}`, floats(1), Bytes(dtype.I64, 0, 0, 0), Bytes(dtype.U32, 0, 0, 0, 0, 7, 0), make([]byte, 8))
	runAll(t, c)
	const n = 64 * 256
	f, i, u, d := Numbers(dtype.F32, c.Buffers[0]), Numbers(dtype.I64, c.Buffers[1]), Numbers(dtype.U32, c.Buffers[2]), Numbers(dtype.F64, c.Buffers[3])
	if f[0] != n || d[0] != n/2 || i[0] != n*(n-1)/2 || i[1] != -(n-1) || i[2] != float64((n-1)<<33) {
		t.Errorf("sums are %g, %g, %v", f[0], d[0], i)
	}
	if want := []float64{64, 64, 256, 7, 11, 9}; fmt.Sprint(u) != fmt.Sprint(want) {
		t.Errorf("counters are %v, want %v", u, want)
	}
}

// TestLdmatrix compares what each lane gets with the table of fragments of the PTX ISA, section "ldmatrix".
func TestLdmatrix(t *testing.T) {
	const body = `
GTC_SHARED(u16, m, [4 * 64]);
for (int i = threadIdx.x; i < 256; i += 32) {
	m[i] = u16(i);
}
sync();
u32 r[4], q[2];
ldmatrix_x4%[1]s(r, m + threadIdx.x * 8);
ldmatrix_x2%[1]s(q, m + 64 + (threadIdx.x & 15) * 8);
for (int i = 0; i < 4; i++) {
	y[threadIdx.x * 6 + i] = r[i];
}
y[threadIdx.x * 6 + 4] = q[0];
y[threadIdx.x * 6 + 5] = q[1];`
	straight := one("straight", 1, 32, 0, "gtc::u32* y", fmt.Sprintf(body, ""), floats(192))
	turned := one("turned", 1, 32, 0, "gtc::u32* y", fmt.Sprintf(body, "_trans"), floats(192))
	runAll(t, straight, turned)
	for k, c := range []*Case{straight, turned} {
		got := Numbers(dtype.U16, c.Buffers[0])
		for l := range 32 {
			for i, matrix := range []int{0, 1, 2, 3, 1, 2} {
				for half := range 2 {
					row, column := l/4, l%4*2+half
					if k == 1 {
						row, column = column, row
					}
					if have, want := got[l*12+i*2+half], float64(64*matrix+8*row+column); have != want {
						t.Fatalf("%s, lane %d, register %d.%d: %g, want %g", c.Name, l, i, half, have, want)
					}
				}
			}
		}
	}
}

// TestMma multiplies known matrices, whose fragments it lays out by the tables of the PTX ISA, section "mma".
func TestMma(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	var cases []*Case
	var wants [][]float64
	for _, kind := range []struct {
		name string
		d    dtype.DType
		k    int
		call string
	}{{"bf16", dtype.BF16, 16, "mma_16816(d, a, b, bf16{})"}, {"f16", dtype.F16, 16, "mma_16816(d, a, b, f16{})"}, {"tf32", dtype.F32, 8, "mma_1688_tf32(d, a, b)"}} {
		a, b, d := integers(r, 16*kind.k), integers(r, kind.k*8), integers(r, 16*8)
		var fa, fb, fd []float64
		for l := range 32 {
			g, q := l/4, l%4
			if kind.k == 16 {
				for _, at := range [][2]int{{g, 2 * q}, {g + 8, 2 * q}, {g, 2*q + 8}, {g + 8, 2*q + 8}} {
					fa = append(fa, a[at[0]*16+at[1]], a[at[0]*16+at[1]+1])
				}
				fb = append(fb, b[2*q*8+g], b[(2*q+1)*8+g], b[(2*q+8)*8+g], b[(2*q+9)*8+g])
			} else {
				fa = append(fa, a[g*8+q], a[(g+8)*8+q], a[g*8+q+4], a[(g+8)*8+q+4])
				fb = append(fb, b[q*8+g], b[(q+4)*8+g])
			}
			fd = append(fd, d[g*8+2*q], d[g*8+2*q+1], d[(g+8)*8+2*q], d[(g+8)*8+2*q+1])
		}
		var want []float64
		for l := range 32 {
			for i := range 4 {
				row, column := l/4+i/2*8, l%4*2+i%2
				sum := d[row*8+column]
				for k := range kind.k {
					sum += a[row*kind.k+k] * b[k*8+column]
				}
				want = append(want, sum)
			}
		}
		wants = append(wants, want)
		cases = append(cases, one(kind.name, 1, 32, 0, "const gtc::u32* x, const gtc::u32* y, float* z", `
u32 a[4], b[2];
float d[4];
for (int i = 0; i < 4; i++) {
	a[i] = x[threadIdx.x * 4 + i];
	d[i] = z[threadIdx.x * 4 + i];
}
b[0] = y[threadIdx.x * 2];
b[1] = y[threadIdx.x * 2 + 1];
`+kind.call+`;
for (int i = 0; i < 4; i++) {
	z[threadIdx.x * 4 + i] = d[i];
}`, Bytes(kind.d, fa...), Bytes(kind.d, fb...), Bytes(dtype.F32, fd...)))
	}
	tf32 := one("to_tf32", 1, 32, 0, "float* x", "x[threadIdx.x] = __uint_as_float(to_tf32(x[threadIdx.x]));",
		Bytes(dtype.F32, append([]float64{1 + 1.0/2048, -1 - 1.0/2048, 1 + 1.0/4096, math.Inf(1)}, make([]float64, 28)...)...))
	runAll(t, append(cases, tf32)...)
	for i, c := range cases {
		for k, got := range Numbers(dtype.F32, c.Buffers[2]) {
			if got != wants[i][k] {
				t.Fatalf("%s, lane %d, register %d: %g, want %g", c.Name, k/4, k%4, got, wants[i][k])
			}
		}
	}
	if got := Numbers(dtype.F32, tf32.Buffers[0])[:4]; fmt.Sprint(got) != fmt.Sprint([]float64{1 + 1.0/1024, -1 - 1.0/1024, 1, math.Inf(1)}) {
		t.Errorf("to_tf32 gives %v", got)
	}
}

// integers are small ones, so that sums of products are exact in every type.
func integers(r *rand.Rand, n int) []float64 {
	x := make([]float64, n)
	for i := range x {
		x[i] = float64(r.IntN(15) - 7)
	}
	return x
}

// TestAsyncCopies pipelines copies in two buffers, and one that is not valid.
func TestAsyncCopies(t *testing.T) {
	c := one("pipeline", 1, 32, 1024, "const float* x, float* y", `
GTC_DYNAMIC_SHARED(float, s);
int t = threadIdx.x;
cp_async16(s + t * 4, x + t * 4, true);
cp_async_commit();
for (int i = 0; i < 4; i++) {
	if (i < 3) {
		cp_async16(s + (i + 1) % 2 * 128 + t * 4, x + (i + 1) * 128 + t * 4, i != 1 || t < 16);
	}
	cp_async_commit();
	cp_async_wait<1>();
	sync();
	store(y + i * 128 + (t ^ 1) * 4, load<4>(s + i % 2 * 128 + (t ^ 1) * 4));
	sync();
}`, Bytes(dtype.F32, ramp(512)...), floats(512))
	runAll(t, c)
	for i, got := range Numbers(dtype.F32, c.Buffers[1]) {
		want := float64(i)
		if i >= 2*128+64 && i < 3*128 {
			want = 0
		}
		if got != want {
			t.Fatalf("element %d: %g, want %g", i, got, want)
		}
	}
}

// TestProfile counts sectors and passes of accesses whose numbers are known.
func TestProfile(t *testing.T) {
	t.Setenv(Profile, "1")
	rec := &recorder{TB: t}
	c := one("accesses", 1, 32, 0, "float* y", `
GTC_SHARED(float, s, [32 * 32]);
int t = threadIdx.x;
s[t * 32] = y[t * 8];
sync();
y[t] = s[t] + s[t * 32];`, floats(256))
	RunAll(rec, []*Case{c})
	if c.Err != nil {
		t.Fatal(c.Err)
	}
	for _, want := range []string{"shared:      1 requests,      128 bytes,      32 passes of       1 at best", "global:      1 requests,      128 bytes,      32 sectors of       4 at best"} {
		if !strings.Contains(rec.text, want) {
			t.Errorf("the log lacks %q:%s", want, rec.text)
		}
	}
}

// recorder keeps what a test logs.
type recorder struct {
	testing.TB
	text string
}

func (r *recorder) Log(args ...any) { r.text += fmt.Sprint(args...) }
