package safetensors

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// testdata/torch.safetensors was written by safetensors 0.8 from PyTorch: one tensor
// [[1,0],[1,1]] for each type, named like it, a scalar 2.5 and an empty one.
func TestReadTorch(t *testing.T) {
	f, err := Open("testdata/torch.safetensors")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	one := map[string]string{"F32": "\x00\x00\x80\x3f", "F64": "\x00\x00\x00\x00\x00\x00\xf0\x3f", "F16": "\x00\x3c",
		"BF16": "\x80\x3f", "I8": "\x01", "U8": "\x01", "BOOL": "\x01", "I16": "\x01\x00", "U16": "\x01\x00",
		"I32": "\x01\x00\x00\x00", "U32": "\x01\x00\x00\x00", "I64": "\x01\x00\x00\x00\x00\x00\x00\x00",
		"U64": "\x01\x00\x00\x00\x00\x00\x00\x00", "F8_E4M3": "\x38", "F8_E5M2": "\x3c"}
	if got, want := len(f.Names()), len(one)+2; got != want {
		t.Errorf("%d tensors, want %d", got, want)
	}
	for dtype, bits := range one {
		x, err := f.Tensor(dtype)
		if err != nil {
			t.Error(err)
			continue
		}
		zero := strings.Repeat("\x00", len(bits))
		if x.DType != dtype || !reflect.DeepEqual(x.Shape, []int{2, 2}) || string(x.Data) != bits+zero+bits+bits {
			t.Errorf("%s: got %s%v %x", dtype, x.DType, x.Shape, x.Data)
		}
	}
	if x, err := f.Tensor("scalar"); err != nil || len(x.Shape) != 0 || string(x.Data) != "\x00\x00\x20\x40" {
		t.Errorf("scalar: %+v %v", x, err)
	}
	if x, err := f.Tensor("empty"); err != nil || !reflect.DeepEqual(x.Shape, []int{3, 0}) || len(x.Data) != 0 {
		t.Errorf("empty: %+v %v", x, err)
	}
	if f.Metadata()["format"] != "pt" {
		t.Errorf("metadata %v", f.Metadata())
	}
	if _, err := f.Tensor("x"); err == nil || !strings.Contains(err.Error(), `torch.safetensors: there is no tensor "x"`) {
		t.Errorf("missing tensor: %v", err)
	}
	// Writing the same tensors again, in whatever order, gives what reads back equal.
	path := filepath.Join(t.TempDir(), "again.safetensors")
	if err := WriteFile(path, f.Tensors(), f.Metadata()); err != nil {
		t.Fatal(err)
	}
	g, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	for _, x := range f.Tensors() {
		if y, err := g.Tensor(x.Name); err != nil || !reflect.DeepEqual(x, y) {
			t.Errorf("%s changed: %+v %v", x.Name, y, err)
		}
	}
}

func TestWriteDeterministic(t *testing.T) {
	a := Tensor{Name: "a \"b\" é", DType: "f32", Shape: []int{2}, Data: make([]byte, 8)}
	b := Tensor{Name: "b", DType: "F8_E4M3", Shape: []int{3}, Data: []byte{1, 2, 3}}
	c := Tensor{Name: "c", DType: "bf16", Data: []byte{1, 2}}
	meta := map[string]string{"z": "1", "a": "2", "m": "3"}
	var first []byte
	for _, order := range [][]Tensor{{a, b, c}, {c, b, a}, {b, a, c}} {
		var buf bytes.Buffer
		if err := Write(&buf, order, meta); err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = buf.Bytes()
		}
		if !bytes.Equal(first, buf.Bytes()) {
			t.Error("the order of the tensors changes the file")
		}
	}
	if (binary.LittleEndian.Uint64(first)+8)%align != 0 {
		t.Error("data are not aligned")
	}
	tensors, got, err := Parse(first)
	if err != nil || len(tensors) != 3 || !reflect.DeepEqual(got, meta) || tensors[0].Name != a.Name || tensors[1].Elem() != "bf16" {
		t.Errorf("read back %+v %v %v", tensors, got, err)
	}
	var empty bytes.Buffer
	if err := Write(&empty, nil, nil); err != nil {
		t.Fatal(err)
	}
	if tensors, _, err := Parse(empty.Bytes()); err != nil || len(tensors) != 0 {
		t.Errorf("empty file: %v", err)
	}
	for want, bad := range map[string][]Tensor{
		"occurs twice":                   {c, c},
		"needs 8 bytes, but 4 are given": {{Name: "x", DType: "F32", Shape: []int{2}, Data: make([]byte, 4)}},
		"not one of":                     {{Name: "x", DType: "f99"}},
		"does not allow":                 {{Name: "__metadata__", DType: "u8", Shape: []int{0}}},
	} {
		if err := Write(&bytes.Buffer{}, bad, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// file builds a file from header text and data.
func file(text string, data int) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(text)))
	return append(append(b, text...), make([]byte, data)...)
}

func TestBadFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.safetensors")
	good := `{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}}`
	swap := func(old, new string) string { return strings.Replace(good, old, new, 1) }
	for _, c := range []struct {
		name string
		file []byte
		want string
	}{
		{"fine", file(good, 9), ""},
		{"fine, padded", file(good+"   ", 9), ""},
		{"empty", nil, "too few"},
		{"huge header", []byte("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "the format allows"},
		{"header beyond end", file(good, 9)[:50], "cut short"},
		{"cut short", file(good, 8), `"b": data_offsets [8 9] are outside the 8 bytes`},
		{"too long", file(good, 10), "1 bytes after the last tensor"},
		{"not json", file("{,}", 0), "header:"},
		{"no end", file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}`, 8), "header:"},
		{"array", file("[]", 0), "does not start with"},
		{"rest", file(good+"x", 9), "follows the closing"},
		{"utf8", file(swap(`"b"`, "\"\xff\""), 9), "UTF-8"},
		{"twice", file(swap(`"b"`, `"a"`), 9), `"a" occurs twice`},
		{"overlap", file(swap("[8,9]", "[7,8]"), 8), "overlap"},
		{"gap", file(swap("[8,9]", "[9,10]"), 10), "belong to no tensor"},
		{"dtype", file(swap("U8", "U9"), 9), `unknown dtype "U9"`},
		{"size", file(swap("[2]", "[3]"), 9), "F32[3] needs 12 bytes, but data_offsets [0 8] span 8"},
		{"negative dim", file(swap("[2]", "[-2]"), 9), "negative"},
		{"overflow", file(swap("[2]", "[4611686018427387904,4]"), 9), "overflows"},
		{"backwards", file(swap("[0,8]", "[8,0]"), 9), "outside"},
		{"huge offset", file(swap("[8,9]", "[9223372036854775806,9223372036854775807]"), 9), "outside"},
		{"fraction", file(swap("[0,8]", "[0,8.5]"), 9), `tensor "a"`},
		{"missing", file(swap(`"dtype":"U8",`, ""), 9), "missing"},
		{"three", file(swap("[0,8]", "[0,8,9]"), 9), "must have 2 numbers, not 3"},
		{"half byte", file(`{"a":{"dtype":"F4","shape":[3],"data_offsets":[0,1]}}`, 1), "whole number of bytes"},
		{"metadata", file(`{"__metadata__":{"a":1}}`, 0), "__metadata__"},
	} {
		os.WriteFile(path, c.file, 0o644)
		f, err := Open(path)
		if err == nil {
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

func FuzzParse(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"__metadata__":{"k":"v"}}`, 8))
	f.Add(file(`{}`, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		tensors, meta, err := Parse(b)
		if err != nil {
			return
		}
		// What was accepted can be written, and reads back equal.
		var buf bytes.Buffer
		if err := Write(&buf, tensors, meta); err != nil {
			t.Fatalf("accepted %+v, cannot write it: %v", tensors, err)
		}
		again, _, err := Parse(buf.Bytes())
		if err != nil || len(again) != len(tensors) {
			t.Fatalf("cannot read back: %v", err)
		}
	})
}
