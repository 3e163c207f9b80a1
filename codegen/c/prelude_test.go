package c

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/kernels/cpu"
)

// halves reads f32 from standard input and writes their f16, bf16 and small codes, then the value of each of those.
const halves = `
int main(void) {
	float x;
	while (fread(&x, 4, 1, stdin) == 1) {
		gtc_f16 h = gtc_f16_put(x);
		gtc_bf16 b = gtc_bf16_put(x);
		uint8_t c[] = {gtc_f8_e4m3_put(x), gtc_f8_e4m3fnuz_put(x), gtc_f8_e5m2_put(x), gtc_f8_e5m2fnuz_put(x), gtc_f8_e8m0_put(x), gtc_f4_e2m1_put(x)};
		float v[] = {gtc_f16_get(h), gtc_bf16_get(b), gtc_f8_e4m3_get(c[0]), gtc_f8_e4m3fnuz_get(c[1]), gtc_f8_e5m2_get(c[2]),
			gtc_f8_e5m2fnuz_get(c[3]), gtc_f8_e8m0_get(c[4]), gtc_f4_e2m1_get(c[5])};
		fwrite(v, 4, 8, stdout);
	}
}
`

// narrowTypes is the order of values that the program writes.
var narrowTypes = []dtype.DType{dtype.F16, dtype.BF16, dtype.F8E4M3, dtype.F8E4M3Z, dtype.F8E5M2, dtype.F8E5M2Z, dtype.F8E8M0, dtype.F4E2M1}

// TestRounding holds the conversions of generated C, both those of a compiler that has _Float16 and those of one that
// has not, to package dtype: every f16 and bf16 value, the numbers halfway between and next to those, and random bits.
func TestRounding(t *testing.T) {
	var in []float32
	add := func(f float32) {
		b := math.Float32bits(f)
		in = append(in, f, math.Float32frombits(b-1), math.Float32frombits(b+1))
	}
	for i := range 1 << 16 {
		add(dtype.F16ToF32(uint16(i)))
		add((dtype.F16ToF32(uint16(i)) + dtype.F16ToF32(uint16(i+1))) / 2)
		add(dtype.BF16ToF32(uint16(i)))
		add(math.Float32frombits(uint32(i)<<16 | 0x8000))
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 1 << 16 {
		in = append(in, math.Float32frombits(r.Uint32()))
	}
	for i, flag := range []string{"-O1", "-U__FLT16_MANT_DIG__"} {
		got := runHalves(t, flag, in)
		for k, x := range in {
			for j, d := range narrowTypes {
				want, v := d.Round(float64(x)), float64(got[8*k+j])
				if d.IsSmallFloat() {
					want = d.Decode(d.Encode(float64(x), d == dtype.F8E8M0))
				}
				if v != want && !(v != v && want != want) || v == 0 && math.Signbit(v) != math.Signbit(want) {
					t.Fatalf("build %d: %g (%08x) as %s is %g, want %g", i, x, math.Float32bits(x), d, v, want)
				}
			}
		}
	}
}

func runHalves(t *testing.T, flag string, in []float32) []float32 {
	dir := t.TempDir()
	text := "#include <stdio.h>\n" + Prelude(halves) + halves
	if err := os.WriteFile(filepath.Join(dir, "gtc_math.h"), []byte(cpu.MathHeader), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.c"), []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "a")
	if out, err := exec.Command("gcc", flag, "-std=gnu11", "-march=native", "-Wno-unused", "-o", bin, filepath.Join(dir, "a.c"), "-lm").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	data, err := binary.Append(nil, binary.LittleEndian, in)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin)
	file := filepath.Join(dir, "in")
	if err := os.WriteFile(file, data, 0o666); err != nil {
		t.Fatal(err)
	}
	if cmd.Stdin, err = os.Open(file); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	got := make([]float32, 8*len(in))
	if n, err := binary.Decode(out, binary.LittleEndian, got); err != nil || n != len(out) {
		t.Fatal(fmt.Errorf("read %d of %d bytes: %w", n, len(out), err))
	}
	return got
}
