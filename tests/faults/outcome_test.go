package faults

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// outcome is what a training gave.
type outcome struct {
	compiled string               // what gtc compile said
	ran      string               // what gtc run said, a line of JSON for each event
	weights  map[string][]float64 // by their names, as exported
}

// event is a line of gtc run --json: its fields by their names, numbers as float64.
type event map[string]any

// events are those of one kind, such as "step", "eval" and "end", in order.
func (o *outcome) events(kind string) []event {
	var list []event
	for line := range strings.Lines(o.ran) {
		var e event
		if json.Unmarshal([]byte(line), &e) == nil && e["event"] == kind {
			list = append(list, e)
		}
	}
	return list
}

// near compares numbers with right ones: the largest difference is at most tol.
func near(t *testing.T, what string, got, want []float64, tol float64) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
		return
	}
	for i := range want {
		if !(math.Abs(got[i]-want[i]) <= tol) {
			t.Errorf("%s: %v, want %v within %g", what, got, want, tol)
			return
		}
	}
}

// exported are the weights of the newest checkpoint, as gtc export writes them.
func exported(t *testing.T, dir string) map[string][]float64 {
	t.Helper()
	path := filepath.Join(t.TempDir(), "weights.safetensors")
	if code, text := gtc(t, "export", dir, "-o", path); code != 0 {
		t.Fatalf("gtc export: code %d\n%s", code, text)
	}
	f, err := safetensors.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out := map[string][]float64{}
	for _, x := range f.Tensors() {
		b, err := data.Convert(x.Data, x.Elem(), "f64")
		if err != nil {
			t.Fatal(x.Name, err)
		}
		out[x.Name] = decode(b)
	}
	return out
}

// arrays are the names in a .npz file of the folder.
func arrays(t *testing.T, file string) []string {
	t.Helper()
	f, err := npz.Open(input(t, file+".npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Names()
}

// array is one of a .npz file of the folder.
func array(t *testing.T, file, name string) []float64 {
	t.Helper()
	f, err := npz.Open(input(t, file+".npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a, err := f.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := data.Convert(a.Data, a.DType, "f64")
	if err != nil {
		t.Fatal(err)
	}
	return decode(b)
}

// decode reads little-endian float64 numbers.
func decode(b []byte) []float64 {
	out := make([]float64, len(b)/8)
	for i := range out {
		out[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return out
}
