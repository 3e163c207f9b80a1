package cudatest

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/kernels/cuda"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest/carry"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Keep, set in the environment, is a folder into which RunAll puts what it runs, for a machine with a GPU (tests/gpu): cases of
// at most keepBytes that say what types their results have, and passed the checks.
const Keep = "GTC_CUDATEST_KEEP"

const (
	keepBytes = 1 << 20
	align     = 256
)

// Typed is elements of a buffer that kernels write.
type Typed struct {
	Buffer, Offset, Elems int
	DType                 dtype.DType
}

// before are copies of what the cases begin with; nil unless they are kept.
func before(cases []*Case) [][][]byte {
	if os.Getenv(Keep) == "" {
		return nil
	}
	var all [][][]byte
	for _, c := range cases {
		var b [][]byte
		for _, x := range c.Buffers {
			b = append(b, bytes.Clone(x))
		}
		all = append(all, b)
	}
	return all
}

// keep writes the cases, which have run, to the folder.
func keep(t testing.TB, cases []*Case, names [][]string, start [][][]byte) {
	dir := os.Getenv(Keep)
	if dir == "" {
		return
	}
	g := &carry.Group{Name: t.Name()}
	numbers := map[string]int{}
	for i, c := range cases {
		k := c.carried(start[i])
		if k == nil {
			continue
		}
		for n, kernel := range c.Plan.Kernels {
			name := names[i][n]
			if _, known := numbers[name]; !known {
				numbers[name] = len(g.Kernels)
				g.Kernels = append(g.Kernels, carry.Kernel{Name: name, Text: named.ReplaceAllString(kernel.Text, name), Include: kernel.Include, Family: kernel.Family})
			}
			k.Launches[n].Kernel = numbers[name]
		}
		g.Cases = append(g.Cases, *k)
	}
	if len(g.Cases) == 0 {
		return
	}
	name := strings.NewReplacer("/", "_", " ", "_").Replace(t.Name())
	path := filepath.Join(dir, name+".cases")
	for n := 2; ; n++ {
		if _, err := os.Stat(path); err != nil {
			break
		}
		path = filepath.Join(dir, fmt.Sprintf("%s-%d.cases", name, n))
	}
	if err := carry.Write(path, g); err != nil {
		t.Fatal(err)
	}
}

// carried lays the case's memory out; nil when it is not to be kept.
func (c *Case) carried(start [][]byte) *carry.Case {
	results := slices.Clone(c.Results)
	for i, d := range c.Types {
		if d != dtype.Invalid && i < len(start) && start[i] != nil && !bytes.Equal(start[i], c.Buffers[i]) {
			results = append(results, Typed{Buffer: i, Elems: len(start[i]) / d.Size(), DType: d})
		}
	}
	if c.Err != nil || len(results) == 0 || len(c.Plan.Kernels) == 0 {
		return nil
	}
	k := &carry.Case{Name: c.Name, Status: c.Status}
	at := make([]int, len(start))
	for i, b := range start {
		at[i] = len(k.Memory)
		k.Memory = append(k.Memory, b...)
		k.Memory = append(k.Memory, make([]byte, -len(k.Memory)&(align-1))...)
	}
	workspace := len(k.Memory)
	if k.Size = workspace + c.Plan.Workspace; k.Size > keepBytes {
		return nil
	}
	for _, kernel := range c.Plan.Kernels {
		l := carry.Launch{Grid: kernel.Grid, Block: kernel.Block, Shared: kernel.Shared, Table: kernel.Table}
		for _, a := range kernel.Args {
			switch {
			case a.Arg == cuda.Workspace:
				l.Args = append(l.Args, workspace+a.Offset)
			case a.Arg < 0:
				l.Args = append(l.Args, a.Arg)
			case start[a.Arg] == nil:
				l.Args = append(l.Args, abi.ArgNil)
			default:
				l.Args = append(l.Args, at[a.Arg]+a.Offset)
			}
		}
		k.Launches = append(k.Launches, l)
	}
	for _, r := range results {
		n := r.Elems * r.DType.Size()
		k.Results = append(k.Results, carry.Result{Offset: at[r.Buffer] + r.Offset, DType: r.DType, Want: bytes.Clone(c.Buffers[r.Buffer][r.Offset : r.Offset+n])})
	}
	if k.Status == 0 {
		k.Status = math.MaxInt64
	}
	return k
}
