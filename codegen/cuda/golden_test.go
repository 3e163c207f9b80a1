package cuda_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	gencuda "github.com/gtc-compiler/gtc/codegen/cuda"
	"github.com/gtc-compiler/gtc/ir/kir"
	"github.com/gtc-compiler/gtc/ir/kir/kirtest"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest"
)

var rewrite = flag.Bool("update", false, "rewrite testdata/*.cu")

// TestGoldens prints the kernels of ir/kir/testdata and compares the text with testdata/NAME.cu, so that a change of the printer is
// a difference that can be read. -update cannot bless a wrong one: each is run on this processor, and held to kir's Eval.
func TestGoldens(t *testing.T) {
	list := kirtest.Goldens(t, "../../ir/kir/testdata")
	for _, k := range list {
		plan, err := printed(k)
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		kirtest.Compare(t, filepath.Join("testdata", k.Name+".cu"), describe(plan), *rewrite)
	}
	runAgainstEval(t, list)
}

// TestFunctions holds every scalar function and conversion of generated CUDA to what its row in kir's table says it is.
func TestFunctions(t *testing.T) { runAgainstEval(t, kirtest.Functions(t)) }

// printed is the plan of k. Numbers alone have a launch of their own kind, whose table says where they are.
func printed(k *kirtest.Kernel) (*cuda.Plan, error) {
	if c := (gencuda.Call{Kernel: k.Kernel, At: make([]int, len(k.Kernel.Params))}); c.Key() == gencuda.Scalars {
		for i := range c.At {
			c.At[i] = 64 * i
		}
		list, err := gencuda.InOrder(k.Name, []gencuda.Call{c})
		return &cuda.Plan{Kernels: list}, err
	}
	list, work, err := gencuda.Kernels(k.Name, k.Kernel)
	return &cuda.Plan{Kernels: list, Workspace: work}, err
}

// describe is the text of a plan, with how it is launched.
func describe(plan *cuda.Plan) string {
	var b strings.Builder
	fmt.Fprintf(&b, "// workspace %d\n", plan.Workspace)
	for _, k := range plan.Kernels {
		fmt.Fprintf(&b, "\n// %s: %s, grid %v block %v args %v", k.Name, k.Family, k.Grid, k.Block, k.Args)
		if k.Table != nil {
			fmt.Fprintf(&b, " table %v", k.Table)
		}
		b.WriteString("\n" + k.Text)
	}
	return b.String()
}

func runAgainstEval(t *testing.T, list []*kirtest.Kernel) {
	t.Helper()
	var cases []*cudatest.Case
	for _, k := range list {
		plan, err := printed(k)
		if err != nil {
			t.Fatalf("%s: %v", k.Name, err)
		}
		c := &cudatest.Case{Name: k.Name, Plan: plan}
		for i, p := range k.Kernel.Params {
			c.Buffers = append(c.Buffers, k.Before[i].Bytes(p.DType))
		}
		if plan.Kernels[0].Table != nil {
			c.Buffers = [][]byte{inOne(c.Buffers)}
		}
		cases = append(cases, c)
	}
	cudatest.RunAll(t, cases)
	for i, c := range cases {
		got := c.Buffers
		if len(c.Plan.Kernels[0].Table) > 0 {
			got = apart(c.Buffers[0], list[i].Kernel.Params)
		}
		if c.Err != nil {
			t.Errorf("%v\n%s\n%s", c.Err, list[i].Kernel, c.Plan.Kernels[0].Text)
			continue
		}
		list[i].Check(t, got)
	}
}

// inOne lays buffers of numbers 64 bytes apart, apart takes them out again.
func inOne(buffers [][]byte) []byte {
	arena := make([]byte, 64*len(buffers))
	for i, b := range buffers {
		copy(arena[64*i:], b)
	}
	return arena
}

func apart(arena []byte, params []kir.Param) [][]byte {
	var out [][]byte
	for i, p := range params {
		out = append(out, arena[64*i:][:p.DType.Size()])
	}
	return out
}
