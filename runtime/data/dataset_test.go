package data

import (
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// bytesArray is an array [n, row...] of u8 whose sample i is filled with i.
func bytesArray(name string, n int, row ...int) npz.Array {
	size := 1
	for _, d := range row {
		size *= d
	}
	a := npz.Array{Name: name, DType: "u8", Shape: append([]int{n}, row...), Data: make([]byte, n*size)}
	for i := range a.Data {
		a.Data[i] = byte(i / size)
	}
	return a
}

func labels(name string, v ...int64) npz.Array {
	a := npz.Array{Name: name, DType: "i64", Shape: []int{len(v)}}
	for _, x := range v {
		a.Data = binary.LittleEndian.AppendUint64(a.Data, uint64(x))
	}
	return a
}

func write(t *testing.T, name string, arrays ...npz.Array) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := npz.WriteFile(path, arrays); err != nil {
		t.Fatal(err)
	}
	return path
}

func row(t *testing.T, d *Dataset, input int, sample int64) []byte {
	t.Helper()
	dst := make([]byte, d.RowBytes(input))
	if err := d.read(input, sample, false, dst, d.newScratch()); err != nil {
		t.Fatal(err)
	}
	return dst
}

var image = []Input{{Name: "input", DType: "f32", Shape: []int{1, 2, 3}},
	{Name: "target", DType: "i64", Target: true, Hi: 10}}

func TestOpenArrays(t *testing.T) {
	path := write(t, "d.npz", bytesArray("image", 4, 2, 3), labels("label", 3, 1, 4, 1), npz.Array{Name: "note", DType: "u8", Data: []byte{1}})
	// "label" is the target by its name; "image" and "note" are left over, so the image is named.
	d, err := Open([]string{path}, image, Options{Map: map[string]string{"input": "image"}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Len() != 4 || d.Starts() != 0 {
		t.Errorf("%d samples, %d starts", d.Len(), d.Starts())
	}
	if got := floats(row(t, d, 0, 2)); !reflect.DeepEqual(got, []float32{2, 2, 2, 2, 2, 2}) {
		t.Errorf("sample 2 is %v", got)
	}
	if got := row(t, d, 1, 2); binary.LittleEndian.Uint64(got) != 4 {
		t.Errorf("label 2 is %v", got)
	}
	if got := d.Bindings()[0]; got != "input f32[1 2 3] <- image u8" {
		t.Errorf("binding %q", got)
	}

	// Two files are one data set; a sole left-over pair needs no names.
	one := write(t, "a.npz", bytesArray("image", 3, 2, 3), labels("label", 0, 1, 2))
	two := write(t, "b.npz", labels("label", 7), bytesArray("image", 1, 2, 3))
	d, err = Open([]string{one, two}, image, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Len() != 4 || binary.LittleEndian.Uint64(row(t, d, 1, 3)) != 7 || floats(row(t, d, 0, 3))[0] != 0 {
		t.Errorf("%d samples, the last %v", d.Len(), row(t, d, 1, 3))
	}
	d.Close()

	// npy: one file an array, named like the file; a single-input model takes the single array.
	x := write(t, "whatever.npy", bytesArray("", 5, 6))
	if _, err = Open([]string{x}, image[:1], Options{}); err == nil || !strings.Contains(err.Error(), "a sample has shape [6], but input \"input\" needs [1 2 3]") {
		t.Errorf("[6] for [1 2 3]: %v", err)
	}
	x = write(t, "whatever.npy", bytesArray("", 5, 2, 3, 1))
	if d, err = Open([]string{x}, image[:1], Options{}); err != nil || d.Len() != 5 {
		t.Errorf("npy: %v", err)
	}
}

func TestOpenSafetensors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "d.safetensors")
	in := bytesArray("in0", 3, 2, 3)
	l := labels("y", 1, 2, 3)
	if err := safetensors.WriteFile(path, []safetensors.Tensor{{Name: in.Name, DType: "U8", Shape: in.Shape, Data: in.Data},
		{Name: l.Name, DType: "I64", Shape: []int{3, 1}, Data: l.Data}, {Name: "z", DType: "F8_E4M3", Shape: []int{0}}}, nil); err != nil {
		t.Fatal(err)
	}
	d, err := Open([]string{path}, image, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Len() != 3 || floats(row(t, d, 0, 1))[5] != 1 || row(t, d, 1, 1)[0] != 2 {
		t.Error("wrong values")
	}
}

func TestOpenErrors(t *testing.T) {
	f64 := npz.Array{Name: "input", DType: "f64", Shape: []int{2, 2, 3}, Data: make([]byte, 96)}
	f32 := npz.Array{Name: "label", DType: "f32", Shape: []int{2}, Data: make([]byte, 8)}
	img, lab := bytesArray("input", 2, 2, 3), labels("label", 1, 2)
	for _, c := range []struct {
		name   string
		arrays []npz.Array
		opt    Options
		want   string
	}{
		{"fine", []npz.Array{img, lab}, Options{}, ""},
		{"missing", []npz.Array{img, bytesArray("a", 2), bytesArray("b", 2)}, Options{},
			`d.npz: no array for input "target"; there are "input", "a", "b" (an array of another name is given with --map target=ARRAY)`},
		{"empty", nil, Options{}, `no array for input "input", "target"; there are none`},
		{"ambiguous", []npz.Array{img, lab, labels("y", 1, 2)}, Options{}, `no array for input "target"`},
		{"wrong float", []npz.Array{f64, lab}, Options{}, `d.npz: array "input": it is f64, but input "input" needs f32: floats of another width`},
		{"float label", []npz.Array{img, f32}, Options{}, `array "label": it is f32, but input "target" needs i64: floats are never`},
		{"shape", []npz.Array{bytesArray("input", 2, 3, 2), lab}, Options{}, `array "input": a sample has shape [3 2], but input "input" needs [1 2 3]`},
		{"scalar", []npz.Array{{Name: "input", DType: "u8", Data: []byte{1}}, lab}, Options{}, "single number"},
		{"counts", []npz.Array{img, labels("label", 1)}, Options{}, `array "label" has 1 sample, but "input" has 2`},
		{"none", []npz.Array{bytesArray("input", 0, 2, 3), labels("label")}, Options{}, "no samples"},
		{"map input", []npz.Array{img, lab}, Options{Map: map[string]string{"x": "label"}}, `no input "x" to map array "label" to; it has "input", "target"`},
		{"map array", []npz.Array{img, lab}, Options{Map: map[string]string{"target": "q"}}, `no array "q" for input "target"; there are "input", "label"`},
		{"transform input", []npz.Array{img, lab}, Options{Transforms: map[string]Transform{"x": {}}}, `--transform x=…: the model has no such input`},
		{"transform target", []npz.Array{img, lab}, Options{Transforms: map[string]Transform{"target": {}}}, "needs a float input"},
	} {
		path := write(t, "d.npz", c.arrays...)
		d, err := Open([]string{path}, image, c.opt)
		if err == nil {
			d.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v\nwant %s", c.name, err, c.want)
		}
	}
	for path, want := range map[string]string{"nothing.npz": "nothing.npz", "x.csv": "x.csv: cannot tell", "no-*.npz": "no file matches"} {
		if _, err := Open([]string{path}, image, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Open(nil, image, Options{}); err == nil {
		t.Error("no file at all is accepted")
	}
}

func tokenFile(t *testing.T, name string, n int) string {
	t.Helper()
	var b []byte
	for i := range n {
		b = binary.LittleEndian.AppendUint16(b, uint16(i))
	}
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func ints(t *testing.T, b []byte) []int64 {
	t.Helper()
	out := make([]int64, len(b)/8)
	loadInts(out, b, "i64")
	return out
}

var lm = []Input{{Name: "idx", DType: "i64", Shape: []int{4}, Hi: 1000}, {Name: "targets", DType: "i64", Shape: []int{4}}}

func TestTokens(t *testing.T) {
	paths := []string{tokenFile(t, "a.bin", 10), tokenFile(t, "b.bin", 9)}
	d, err := Open(paths, lm, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if d.Len() != 4 || d.Starts() != 6+5 {
		t.Errorf("%d windows, %d starts; want 4 and 11", d.Len(), d.Starts())
	}
	for sample, first := range []int64{0, 4, 0, 4} {
		x, y := ints(t, row(t, d, 0, int64(sample))), ints(t, row(t, d, 1, int64(sample)))
		if x[0] != first || x[3] != first+3 || y[0] != first+1 || y[3] != first+4 {
			t.Errorf("window %d: %v %v, want it to start at %d", sample, x, y, first)
		}
	}
	for start, first := range map[int64]int64{0: 0, 5: 5, 6: 0, 10: 4} {
		dst := make([]byte, 32)
		if err := d.read(1, start, true, dst, d.newScratch()); err != nil || ints(t, dst)[3] != first+4 {
			t.Errorf("random window %d: %v %v", start, ints(t, dst), err)
		}
	}
	// Without a target the last token of a window needs no successor.
	x, err := Open(paths[:1], lm[:1], Options{Tokens: "u8"})
	if err != nil {
		t.Fatal(err)
	}
	defer x.Close()
	if x.Len() != 5 || x.Starts() != 17 {
		t.Errorf("%d windows, %d starts; want 5 and 17", x.Len(), x.Starts())
	}
	text := filepath.Join(t.TempDir(), "t.txt")
	os.WriteFile(text, []byte("hello, world"), 0o644)
	d, err = Open([]string{text}, lm, Options{})
	if err != nil || d.Len() != 2 || ints(t, row(t, d, 1, 1))[0] != ',' {
		t.Errorf("text: %v", err)
	}
}

func TestTokenErrors(t *testing.T) {
	short, odd := tokenFile(t, "a.bin", 4), filepath.Join(t.TempDir(), "odd.bin")
	os.WriteFile(odd, []byte("abc"), 0o644)
	big := tokenFile(t, "big.bin", 1100)
	mask := append(append([]Input{}, lm...), Input{Name: "mask", DType: "i64", Shape: []int{4}})
	for _, c := range []struct {
		paths  []string
		inputs []Input
		opt    Options
		want   string
	}{
		{[]string{short}, lm, Options{}, `a.bin: it has 4 tokens, fewer than one window of input "idx" needs (5)`},
		{[]string{tokenFile(t, "one.bin", 1)}, lm, Options{}, "one.bin: it has 1 token, fewer"},
		{[]string{odd}, lm, Options{}, "odd.bin: 3 bytes are not a whole number of u16 tokens"},
		{[]string{big}, lm, Options{Tokens: "i8"}, `tokens must be u8, u16 or u32, not "i8"`},
		{[]string{big, write(t, "d.npz")}, lm, Options{}, "cannot be one data set"},
		{[]string{big}, mask, Options{}, `no array for input`},
		{[]string{big}, []Input{lm[0], {Name: "y", DType: "i64", Shape: []int{5}}}, Options{}, "windows of 5 tokens"},
		{[]string{big}, []Input{{Name: "x", DType: "f32", Shape: []int{4}}, lm[1]}, Options{}, ""},
	} {
		d, err := Open(c.paths, c.inputs, c.opt)
		if err == nil {
			d.Close()
		}
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("got %v\nwant %s", err, c.want)
		}
	}
	d, err := Open([]string{big}, lm, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	err = d.read(0, 250, false, make([]byte, 32), d.newScratch())
	if err == nil || !strings.Contains(err.Error(), `big.bin: the window from token 1000, input "idx": element 0: value 1000 is not in [0, 999]`) {
		t.Errorf("token beyond the vocabulary: %v", err)
	}
}

// Labels that the model shifts itself are the window that they go with, and the log says which token is the target.
func TestShiftedLabels(t *testing.T) {
	paths := []string{tokenFile(t, "a.bin", 10)}
	for _, c := range []struct {
		name  string
		ahead int
		opt   Options
		first byte // token of the labels of window 0
		note  string
	}{
		{"labels", 1, Options{}, 0, "labels i64[5] <- x u16: the target at token t is token t+1, as the model shifts it by 1 itself"},
		{"labels", 0, Options{}, 1, "labels i64[5] <- y u16: the target at token t is token t+1"},
		{"other", 1, Options{}, 0, "other i64[5] <- x u16: the target at token t is token t+1, as the model shifts it by 1 itself"},
		{"labels", 1, Options{Map: map[string]string{"labels": "y"}}, 1, "labels i64[5] <- y u16: the target at token t is token t+2, as the model shifts it by 1 itself"},
	} {
		d, err := Open(paths, []Input{{Name: "ids", DType: "i64", Shape: []int{5}}, {Name: c.name, DType: "i64", Shape: []int{5}, Ahead: c.ahead}}, c.opt)
		if err != nil {
			t.Fatal(err)
		}
		ids, labels, s := make([]byte, 40), make([]byte, 40), d.newScratch()
		if err := errors.Join(d.read(0, 0, false, ids, s), d.read(1, 0, false, labels, s)); err != nil {
			t.Fatal(err)
		}
		if got := d.Bindings(); got[1] != c.note || got[0] != "ids i64[5] <- x u16" || labels[0]-ids[0] != c.first {
			t.Errorf("%+v: %q, labels begin with %d, ids with %d", c, got, labels[0], ids[0])
		}
		d.Close()
	}
}

// Labels in an array of their own are named too when the model shifts them.
func TestShiftedArray(t *testing.T) {
	path := write(t, "d.npz", npz.Array{Name: "labels", DType: "i64", Shape: []int{2, 3}, Data: make([]byte, 48)})
	d, err := Open([]string{path}, []Input{{Name: "labels", DType: "i64", Shape: []int{3}, Ahead: 1}}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if got, want := d.Bindings()[0], "labels i64[3] <- labels i64: the model shifts it by 1 itself, its target at place t is element t+1"; got != want {
		t.Errorf("%q, not %q", got, want)
	}
}
