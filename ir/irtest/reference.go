package irtest

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// Array reads one array of a reference, of any element type that the IR has; the test fails where there is none.
func Array(t testing.TB, f *npz.File, name string) *ir.Array {
	t.Helper()
	a, err := f.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	d, err := dtype.Parse(a.DType)
	if err != nil {
		t.Fatalf("array %q: %v", name, err)
	}
	return (&ir.Tensor{Type: ir.T(d, a.Shape...), Data: a.Data}).Array()
}
