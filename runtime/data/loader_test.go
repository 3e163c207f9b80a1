package data

import (
	"context"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/npz"
)

func openNumbers(t *testing.T, n int) *Dataset {
	t.Helper()
	v := make([]int64, n)
	for i := range v {
		v[i] = int64(i)
	}
	ignore := int64(-100)
	d, err := Open([]string{write(t, "d.npz", bytesArray("x", n, 3), labels("y", v...))},
		[]Input{{Name: "x", DType: "u8", Shape: []int{3}}, {Name: "y", DType: "i64", Target: true, Ignore: &ignore}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d
}

// collect reads steps [start, stop) on every rank and returns the samples (padding as -1)
// in the order of the global batch.
func collect(t *testing.T, d *Dataset, s Sampler, ranks, micro int, start, stop int64) [][]int64 {
	t.Helper()
	out := make([][]int64, stop-start)
	for rank := range ranks {
		l, err := d.Loader(Config{Sampler: s, Rank: rank, Ranks: ranks, Micro: micro, Start: start, Stop: stop})
		if err != nil {
			t.Fatal(err)
		}
		for step := start; step < stop; step++ {
			b, err := l.Next(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			valid := 0
			for m := range micro {
				labels, x, w := ints(t, b.Micro(1, m)), b.Micro(0, m), b.MicroWeights(m)
				for i, v := range labels {
					if w[i] == 0 {
						if v != -100 {
							t.Errorf("the target of a padding row is %d, not ignore_index", v)
						}
						v = -1
					} else if valid++; int64(x[3*i]) != v {
						t.Errorf("inputs do not belong together: %d and %d", x[3*i], v)
					}
					out[step-start] = append(out[step-start], v)
				}
			}
			if b.Step != step || b.Valid != valid || b.Rows != s.Batch/ranks || b.GlobalValid != s.Valid(step) {
				t.Errorf("batch %+v", b)
			}
			b.Release()
		}
		for range 2 {
			if _, err := l.Next(context.Background()); err != io.EOF {
				t.Errorf("after the last step: %v", err)
			}
		}
		l.Close()
	}
	return out
}

// The samples of a step, in the order of the global batch, do not depend on the ranks,
// the micro-batches, or on where a run was interrupted.
func TestSameOrderForAnyLayout(t *testing.T) {
	d := openNumbers(t, 19)
	s := d.Sampler(8, 5, false)
	want := collect(t, d, s, 1, 1, 0, 9)
	for _, layout := range [][2]int{{1, 2}, {2, 1}, {2, 2}, {4, 2}, {8, 1}, {1, 8}} {
		if got := collect(t, d, s, layout[0], layout[1], 0, 9); !reflect.DeepEqual(got, want) {
			t.Errorf("%d ranks x %d micro-batches: %v, want %v", layout[0], layout[1], got, want)
		}
		resumed := append(collect(t, d, s, layout[0], layout[1], 0, 4), collect(t, d, s, 2, 1, 4, 9)...)
		if !reflect.DeepEqual(resumed, want) {
			t.Errorf("resumed: %v, want %v", resumed, want)
		}
	}
	for epoch := range 3 {
		count := map[int64]int{}
		for _, step := range want[3*epoch : 3*epoch+3] {
			for _, v := range step {
				count[v]++
			}
		}
		if len(count) != 20 || count[-1] != 5 { // 19 samples and the padding
			t.Errorf("epoch %d: %v", epoch, count)
		}
	}
	if reflect.DeepEqual(want[:3], want[3:6]) {
		t.Error("two epochs have the same order")
	}
}

func TestEval(t *testing.T) {
	d := openNumbers(t, 6)
	var got []int64
	for rank := range 2 {
		l, err := d.Eval(4, rank, 2, 1)
		if err != nil {
			t.Fatal(err)
		}
		for {
			b, err := l.Next(context.Background())
			if err == io.EOF {
				break
			}
			for i, v := range ints(t, b.Inputs[1]) {
				if b.Weights[i] == 1 {
					got = append(got, v)
				}
			}
			b.Release()
		}
		l.Close()
	}
	if fmt.Sprint(got) != "[0 1 4 5 2 3]" {
		t.Errorf("got %v", got)
	}
}

func TestLoaderErrors(t *testing.T) {
	d := openNumbers(t, 19)
	s := d.Sampler(10, 0, false)
	if _, err := d.Loader(Config{Sampler: s, Ranks: 4, Micro: 2}); err == nil ||
		!strings.Contains(err.Error(), "a global batch of 10 samples cannot be divided evenly over 4 ranks x 2 micro-batches") {
		t.Errorf("10 over 4x2: %v", err)
	}
	s.Batch, s.DropLast = 20, true
	if _, err := d.Loader(Config{Sampler: s}); err == nil || !strings.Contains(err.Error(), "19 samples cannot fill") {
		t.Errorf("drop last: %v", err)
	}
	// A bad value reaches the caller, again and again, and nothing hangs.
	bad, err := Open([]string{write(t, "bad.npz", labels("y", 1, 2, 99, 3))}, []Input{{Name: "y", DType: "u8", Hi: 10}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	l, err := bad.Eval(1, 0, 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b, err := l.Next(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
	}
	for range 2 {
		if _, err := l.Next(context.Background()); err == nil || !strings.Contains(err.Error(),
			`bad.npz: array "y", sample 2, input "y": element 0: value 99 is not in [0, 9]`) {
			t.Errorf("got %v", err)
		}
	}
	l.Close()
	// A cancelled context ends the wait for a batch that cannot come.
	l, err = d.Loader(Config{Sampler: d.Sampler(4, 0, false), Slots: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Next(context.Background()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := l.Next(ctx); err != context.Canceled {
		t.Errorf("cancelled: %v", err)
	}
	l.Close()
	l.Close()
	if _, err := l.Next(context.Background()); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("closed: %v", err)
	}
}

func TestLoaderAllocatesNothing(t *testing.T) {
	d := openNumbers(t, 200)
	tok, err := Open([]string{tokenFile(t, "a.bin", 900), tokenFile(t, "b.bin", 900)}, lm, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer tok.Close()
	for name, l := range map[string]func() (*Loader, error){
		"rows":    func() (*Loader, error) { return d.Loader(Config{Sampler: d.Sampler(16, 1, false)}) },
		"windows": func() (*Loader, error) { return tok.Loader(Config{Sampler: tok.Sampler(16, 1, true)}) },
	} {
		l, err := l()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		next := func() {
			b, err := l.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			b.Release()
		}
		if n := testing.AllocsPerRun(500, next); n != 0 {
			t.Errorf("%s: %v allocations a step", name, n)
		}
		cancel()
		l.Close()
	}
}

func BenchmarkLoader(b *testing.B) {
	n := 4096
	img := bytesArray("image", n, 1, 28, 28)
	dir := b.TempDir()
	path := dir + "/d.npz"
	if err := npz.WriteFile(path, []npz.Array{img, labels("y", make([]int64, n)...)}); err != nil {
		b.Fatal(err)
	}
	d, err := Open([]string{path}, []Input{{Name: "x", DType: "f32", Shape: []int{1, 28, 28}},
		{Name: "y", DType: "i64", Target: true}}, Options{Transforms: map[string]Transform{"x": {Scale: []float64{1. / 255}}}})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	l, err := d.Loader(Config{Sampler: d.Sampler(64, 0, false)})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	b.SetBytes(64 * 784)
	for b.Loop() {
		x, err := l.Next(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		x.Release()
	}
}

// A file that another program cuts short while it is mapped is an error with its name, not a crash.
func TestFileCutShort(t *testing.T) {
	const n = 100_000
	file := write(t, "d.npz", labels("y", make([]int64, n)...))
	d, err := Open([]string{file}, []Input{{Name: "y", DType: "i64", Target: true}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.Truncate(file, 100); err != nil {
		t.Fatal(err)
	}
	l, err := d.Loader(Config{Sampler: Sampler{Samples: n, Batch: n}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := l.Next(context.Background()); err == nil || !strings.Contains(err.Error(), "d.npz: the file became shorter") {
		t.Error(err)
	}
}

// A stage of a pipeline reads only its own inputs, of the same samples as the others.
func TestUnreadInputsHaveNoRows(t *testing.T) {
	d := openNumbers(t, 19)
	s := d.Sampler(8, 5, false)
	want := collect(t, d, s, 1, 1, 0, 1)
	l, err := d.Loader(Config{Sampler: s, Stop: 1, Unread: []bool{true, false}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	b, err := l.Next(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	if got := ints(t, b.Micro(1, 0)); b.Inputs[0] != nil || !reflect.DeepEqual(got, want[0]) {
		t.Errorf("%v, %v, want %v", b.Inputs[0], got, want[0])
	}
	if _, err := d.Loader(Config{Sampler: s, Unread: []bool{true}}); err == nil || !strings.Contains(err.Error(), "Unread has 1 entries") {
		t.Error(err)
	}
}
