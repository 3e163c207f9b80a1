package npz

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// The files in testdata were written by NumPy 2.4: arange(6).reshape(2,3), minus 2
// where the type is signed, as c_TYPE, f_TYPE (Fortran order) and be_TYPE (big-endian).

// values decodes an array to float64.
func values(t *testing.T, a *Array) []float64 {
	t.Helper()
	var out []float64
	le := binary.LittleEndian
	for b := a.Data; len(b) > 0; {
		var v float64
		size := 1
		switch a.DType {
		case "bool", "u8":
			v = float64(b[0])
		case "i8":
			v = float64(int8(b[0]))
		case "i16":
			v, size = float64(int16(le.Uint16(b))), 2
		case "u16":
			v, size = float64(le.Uint16(b)), 2
		case "i32":
			v, size = float64(int32(le.Uint32(b))), 4
		case "u32":
			v, size = float64(le.Uint32(b)), 4
		case "i64":
			v, size = float64(int64(le.Uint64(b))), 8
		case "u64":
			v, size = float64(le.Uint64(b)), 8
		case "f32":
			v, size = float64(math.Float32frombits(le.Uint32(b))), 4
		case "f64":
			v, size = math.Float64frombits(le.Uint64(b)), 8
		case "f16": // only the exact small integers of the test
			v, size = map[uint16]float64{0xc000: -2, 0xbc00: -1, 0: 0, 0x3c00: 1, 0x4000: 2, 0x4200: 3}[le.Uint16(b)], 2
		default:
			t.Fatalf("unexpected dtype %q", a.DType)
		}
		out, b = append(out, v), b[size:]
	}
	return out
}

func TestReadNumPy(t *testing.T) {
	types := map[string]string{"b1": "bool", "i1": "i8", "i2": "i16", "i4": "i32", "i8": "i64", "u1": "u8",
		"u2": "u16", "u4": "u32", "u8": "u64", "f2": "f16", "f4": "f32", "f8": "f64"}
	for _, file := range []string{"stored.npz", "deflated.npz"} {
		f, err := Open(filepath.Join("testdata", file))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for code, dtype := range types {
			want := []float64{0, 1, 2, 3, 4, 5}
			switch {
			case dtype == "bool":
				want = []float64{0, 1, 1, 1, 1, 1}
			case code[0] != 'u':
				want = []float64{-2, -1, 0, 1, 2, 3}
			}
			for _, kind := range []string{"c_", "f_", "be_"} {
				a, err := f.Read(kind + code)
				if err != nil {
					t.Error(err)
					continue
				}
				if a.DType != dtype || !reflect.DeepEqual(a.Shape, []int{2, 3}) {
					t.Errorf("%s: %s%s is %s%v", file, kind, code, a.DType, a.Shape)
				}
				if got := values(t, a); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %s%s = %v, want %v", file, kind, code, got, want)
				}
			}
		}
		checkArray(t, f, "scalar", []int{}, []float64{2.5})
		checkArray(t, f, "empty", []int{3, 0, 2}, nil)
		checkArray(t, f, "f1d", []int{5}, iota(5))
		checkArray(t, f, "f3d", []int{2, 3, 4}, iota(24))
	}
	for file, shape := range map[string][]int{"one": {2, 3, 4}, "v2": {3, 2}, "v3": {3, 2}} {
		f, err := Open("testdata/" + file + ".npy")
		if err != nil {
			t.Fatal(err)
		}
		n := 1
		for _, d := range shape {
			n *= d
		}
		checkArray(t, f, file, shape, iota(n))
		f.Close()
	}
}

func iota(n int) []float64 {
	out := make([]float64, n)
	for i := range out {
		out[i] = float64(i)
	}
	return out
}

func checkArray(t *testing.T, f *File, name string, shape []int, want []float64) {
	t.Helper()
	a, err := f.Read(name)
	if err != nil {
		t.Error(err)
		return
	}
	if !reflect.DeepEqual(a.Shape, shape) {
		t.Errorf("%s: shape %v, want %v", name, a.Shape, shape)
	}
	if got := values(t, a); !reflect.DeepEqual(got, want) {
		t.Errorf("%s = %v, want %v", name, got, want)
	}
}

func TestRefused(t *testing.T) {
	for _, file := range []string{"testdata/refused.npz", "testdata/pickled.npz"} {
		f, err := Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		for _, name := range f.Names() {
			_, err := f.Read(name)
			if err == nil || !strings.Contains(err.Error(), file+`: array "`+name+`"`) {
				t.Errorf("%s: error %v does not name file and array", name, err)
			}
		}
	}
	f, _ := Open("testdata/refused.npz")
	if _, err := f.Read("nope"); err == nil || !strings.Contains(err.Error(), `no array "nope"; there are ["rec"`) {
		t.Errorf("missing array: %v", err)
	}
}

func f32Array(name string, shape ...int) Array {
	n := 1
	for _, d := range shape {
		n *= d
	}
	a := Array{Name: name, DType: "f32", Shape: shape, Data: make([]byte, 4*n)}
	for i := range n {
		binary.LittleEndian.PutUint32(a.Data[4*i:], math.Float32bits(float32(i)))
	}
	return a
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	in := []Array{f32Array("a/b.weight", 3, 4), f32Array("s"), f32Array("v", 7), f32Array("none", 0, 2)}
	for _, compress := range []bool{false, true} {
		var one, two bytes.Buffer
		for _, w := range []*bytes.Buffer{&one, &two} {
			if err := Write(w, in, compress); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(one.Bytes(), two.Bytes()) {
			t.Error("writing twice gives different bytes")
		}
		path := filepath.Join(dir, "x.npz")
		os.WriteFile(path, one.Bytes(), 0o644)
		f, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range in {
			a, err := f.Read(in[i].Name)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a.Data, in[i].Data) || a.DType != "f32" || len(a.Shape) != len(in[i].Shape) {
				t.Errorf("%s changed", a.Name)
			}
		}
		f.Close()
	}
	bad := Array{Name: "x", DType: "f32", Shape: []int{2}, Data: make([]byte, 4)}
	if err := WriteNpy(&bytes.Buffer{}, &bad); err == nil || !strings.Contains(err.Error(), "needs 8 bytes, but 4 are given") {
		t.Errorf("wrong size: %v", err)
	}
	bad.DType = "bf16"
	path := filepath.Join(dir, "bad.npy")
	if err := WriteFile(path, []Array{bad}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("bf16: %v", err)
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a failed write left a file")
	}
}

// npy builds a file from header text and data.
func npy(text string, data int) []byte {
	b := append([]byte(magic), 1, 0, byte(len(text)), byte(len(text)>>8))
	return append(append(b, text...), make([]byte, data)...)
}

func TestBadHeaders(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "x.npy")
	good := "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"fine", npy(good, 8), ""},
		{"python 2", npy(strings.Replace(good, "(2,)", "(2L,)", 1), 8), ""},
		{"no comma", npy("{\"shape\":(2),'fortran_order':False,'descr':'<f4'}", 8), ""},
		{"cut short", npy(good, 7), "its header says f32[2], which takes 8 bytes, but the file has 7"},
		{"too long", npy(good, 9), "the file has 9"},
		{"only magic", []byte(magic), "too few"},
		{"version", []byte(magic + "\x04\x00\x00\x00\x00\x00"), "npy version 4.0"},
		{"header beyond end", npy(good, 8)[:20], "only 10 are there"},
		{"2 GB header", []byte(magic + "\x02\x00\xff\xff\xff\x7fxxxx"), "at most"},
		{"huge shape", npy(strings.Replace(good, "(2,)", "(4611686018427387904, 4)", 1), 8), "overflows"},
		{"beyond int64", npy(strings.Replace(good, "(2,)", "(99999999999999999999,)", 1), 8), "does not fit in 64 bits"},
		{"claims much", npy(strings.Replace(good, "(2,)", "(1000000000000,)", 1), 8), "takes 4000000000000 bytes"},
		{"negative", npy(strings.Replace(good, "(2,)", "(-2,)", 1), 8), "non-negative"},
		{"missing key", npy("{'descr': '<f4', 'shape': (2,)}", 8), `"fortran_order" is missing`},
		{"key twice", npy("{'descr': '<f4', 'descr': '<f4'}", 8), "twice"},
		{"rest", npy(good+"x", 8), "follows the closing"},
		{"no order", npy(strings.Replace(good, "<f4", "|f4", 1), 8), "byte order"},
	} {
		os.WriteFile(path, c.file, 0o644)
		f, err := Open(path)
		if err == nil {
			_, err = f.Read("x")
			f.Close()
		}
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		} else if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want %q with the path", c.name, err, c.want)
		}
	}
}

func TestDamagedArchives(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.npz")
	for _, compress := range []bool{false, true} {
		var buf bytes.Buffer
		in := f32Array("a", 64)
		if err := Write(&buf, []Array{in}, compress); err != nil {
			t.Fatal(err)
		}
		whole := buf.Bytes()
		silent := 0
		for i := range whole { // every single-byte change and every cut
			b := bytes.Clone(whole)
			b[i] ^= 0x5a
			if a := tryRead(t, path, b); a != nil && !bytes.Equal(a.Data, in.Data) {
				silent++
			}
			if a := tryRead(t, path, whole[:i]); a != nil && !bytes.Equal(a.Data, in.Data) {
				t.Errorf("compress=%v: cut at %d gives wrong data", compress, i)
			}
		}
		if silent != 0 {
			t.Errorf("compress=%v: %d single-byte changes go unnoticed", compress, silent)
		}
	}
}

func tryRead(t *testing.T, path string, b []byte) *Array {
	t.Helper()
	os.Remove(path) // the old one may be mapped
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	a, err := f.Read("a")
	if err != nil {
		if !strings.Contains(err.Error(), path) {
			t.Errorf("error without the path: %v", err)
		}
		return nil
	}
	a.Data = bytes.Clone(a.Data)
	return a
}

// A member that claims 1 GB in 20 compressed bytes must be refused before anything is allocated.
func TestBomb(t *testing.T) {
	var buf bytes.Buffer
	z := zip.NewWriter(&buf)
	w, err := z.CreateRaw(&zip.FileHeader{Name: "a.npy", Method: zip.Deflate, CompressedSize64: 20,
		UncompressedSize64: 1 << 30, CRC32: crc32.ChecksumIEEE(nil)})
	if err != nil {
		t.Fatal(err)
	}
	w.Write(make([]byte, 20))
	z.Close()
	path := filepath.Join(t.TempDir(), "bomb.npz")
	os.WriteFile(path, buf.Bytes(), 0o644)
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Read("a"); err == nil || !strings.Contains(err.Error(), "more than 20 deflated ones can hold") {
		t.Errorf("got %v", err)
	}
}

func FuzzHeader(f *testing.F) {
	f.Add(npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n", 0))
	f.Add([]byte(magic + "\x02\x00\xff\xff\xff\x7fxxxx"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if h, err := parseHeader(b); err == nil && (h.Bytes() < 0 || h.Offset > len(b)) {
			t.Errorf("accepted %+v", h)
		}
	})
}

func FuzzArchive(f *testing.F) {
	for _, compress := range []bool{false, true} {
		var buf bytes.Buffer
		Write(&buf, []Array{f32Array("a", 3)}, compress)
		f.Add(buf.Bytes())
	}
	path := filepath.Join(f.TempDir(), "x.npz")
	f.Fuzz(func(t *testing.T, b []byte) { tryRead(t, path, b) })
}
