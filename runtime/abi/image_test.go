package abi

import (
	"reflect"
	"testing"
)

func TestUnits(t *testing.T) {
	for _, units := range [][]Unit{nil, {{[]int{0, 7}, []byte("abc")}}, {{[]int{1}, []byte("x")}, {nil, []byte{}}, {[]int{2, 3, 4}, []byte("yz")}}} {
		file := PackUnits(units)
		got, err := UnpackUnits(file)
		if err != nil || !reflect.DeepEqual(got, units) {
			t.Errorf("%v becomes %v, %v", units, got, err)
		}
		for n := range file {
			if got, err := UnpackUnits(file[:n]); err == nil {
				t.Errorf("%d of %d bytes are taken for %v", n, len(file), got)
			}
		}
		if _, err := UnpackUnits(append(file, 0)); err == nil {
			t.Error("what follows the last unit goes unnoticed")
		}
	}
}

func FuzzUnits(f *testing.F) {
	f.Add(PackUnits([]Unit{{[]int{0, 7}, []byte("abc")}, {[]int{1}, nil}}))
	f.Fuzz(func(t *testing.T, file []byte) {
		if units, err := UnpackUnits(file); err == nil && string(PackUnits(units)) != string(file) {
			t.Errorf("%q is %v", file, units)
		}
	})
}
