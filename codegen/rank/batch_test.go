package rank

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/codegen/kernel"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// fillCall is a call that sets n numbers at byte offset at.
func fillCall(g *generator, name string, at, n int, value float64, wait ...int) call {
	v := &ir.Value{Name: name, Type: ir.T(dtype.F32, n), Offset: at}
	c, _ := g.kernelCall(fillKernel(v, value), "fill", "", []kernel.Arg{{Value: v}})
	c.out, c.wait = []*ir.Value{v}, wait
	c.writes = []span{{at, at + 4*n}}
	return c
}

// TestBatches: calls of one kind become one where the last of them is, unless something between them needs the others before.
// Collectives are not passed, and what a call that is put off waits for is waited for as early as before.
func TestBatches(t *testing.T) {
	g := &generator{gpu: &gpu{number: map[string]int{}}, plan: pass.Plan{}}
	reader := func(from, to int, wait ...int) call {
		return call{name: fmt.Sprint("read ", from), touched: touched{reads: []span{{from, to}}}, wait: wait}
	}
	fill := func(name string, at int, wait ...int) call { return fillCall(g, name, at, 100, 0, wait...) }
	cases := []struct {
		name, want string
		calls      []call
	}{
		{"together", "read 9000[] a+b+c[]", []call{fill("a", 0), fill("b", 512), reader(9000, 9001), fill("c", 1024)}},
		{"read between", "a+b[] read 512[] c[]", []call{fill("a", 0), fill("b", 512), reader(512, 516), fill("c", 1024)}},
		{"the same memory", "a[] b+c[]", []call{fill("a", 0), fill("b", 256), fill("c", 1024)}},
		{"other values in the same memory", "a+c[] b[]", []call{fill("a", 0), fillCall(g, "b", 0, 100, 1), fill("c", 1024)}},
		{"not past what is later", "a[] b[] c[]", []call{fill("a", 0), fillCall(g, "b", 1024, 100, 1), fill("c", 1024)}},
		{"collective", "a[] all[] b+c[]", []call{fill("a", 0), {name: "all", comm: &comm{}}, fill("b", 512), fill("c", 1024)}},
		{"waits", "all[] read 9000[0] a+b[]", []call{{name: "all", comm: &comm{}}, fill("a", 0, 0), reader(9000, 9001), fill("b", 512)}},
		{"numbers", "a+b[] one[] two[1] read 0[2]", []call{fill("a", 0), fill("b", 512), {name: "one", comm: &comm{}},
			{name: "two", comm: &comm{}, wait: []int{2}}, reader(0, 4, 3)}},
	}
	for _, c := range cases {
		out, err := g.batched(slices.Clone(c.calls))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, o := range out {
			name := o.name
			if len(o.out) > 0 {
				var parts []string
				for _, v := range o.out {
					parts = append(parts, v.Name)
				}
				name = strings.Join(parts, "+")
			}
			got = append(got, name+fmt.Sprint(o.wait))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s, want %s", c.name, s, c.want)
		}
	}
}
