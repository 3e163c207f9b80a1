package c

import (
	"flag"
	"path/filepath"
	"testing"

	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/kir/kirtest"
)

var update = flag.Bool("update", false, "rewrite testdata/*.c")

// TestGoldens prints the kernels of ir/kir/testdata and compares the text with testdata/NAME.c, so that a change of the printer
// is a difference that can be read. -update cannot bless a wrong one: each is compiled and run, and held to kir's Eval.
func TestGoldens(t *testing.T) {
	list := kirtest.Goldens(t, "../../ir/kir/testdata")
	for _, k := range list {
		text, err := printed(k.Name, k.Kernel)
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		kirtest.Compare(t, filepath.Join("testdata", k.Name+".c"), text, *update)
	}
	kirtest.RunC(t, list, "-O2", printed, Prelude)
}

func printed(name string, k *kir.Kernel) (string, error) { return Function(name, "", k) }

// TestFunctions holds every scalar function and conversion of generated C to what its row in kir's table says it is.
func TestFunctions(t *testing.T) { kirtest.RunC(t, kirtest.Functions(t), "-O0", printed, Prelude) }
