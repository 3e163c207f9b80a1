package train

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/cpu"
)

// build makes the machine of one rank for calls of a function "step" on a mesh, with an arena of 4096 bytes.
func build(t testing.TB, mesh []abi.Axis, rank int, calls []Call, copies []Copy, groups map[string]comm.Communicator) (*machine, error) {
	t.Helper()
	ranks := 1
	for _, a := range mesh {
		if a.Name != "mb" {
			ranks *= a.Size
		}
	}
	text, err := json.Marshal(abi.Manifest{Version: abi.Version, Ranks: ranks, Mesh: mesh, Train: abi.Train{Microbatches: 2},
		Programs: []abi.Program{{ArenaBytes: 4096, Funcs: []abi.Func{{Name: FuncStep}}}}})
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{Plan: text, Funcs: map[string][]Call{FuncStep: calls}, Copies: map[string][]Copy{FuncStep: copies}}
	x, err := readPlan(p, rank)
	if err != nil {
		t.Fatal(err)
	}
	return newMachine(p, x, onProcessor(t, 4096), network{axes: groups})
}

// onProcessor is an arena of n bytes on the processor that the test runs on.
func onProcessor(t testing.TB, n int) memory {
	t.Helper()
	dev, err := cpu.Open(nil, device.Options{ArenaBytes: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return memory{dev: dev, local: dev.(device.Local), large: n}
}

func floats(m *machine, offset, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&m.local.Bytes(offset, 4*n)[0])), n)
}

// On a mesh of 2 x 2 ranks: a reduction along one axis, a gather and a scatter along the other, each waited for where
// it is used, and slices by rank and by micro-batch.
func TestCollectivesAlongAxes(t *testing.T) {
	mesh := []abi.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}
	noop := func(unsafe.Pointer, []int) int64 { return -1 }
	calls := []Call{
		{Name: "sum", Comm: &Comm{Kind: "all_reduce", Axis: "dp", Op: "sum", DType: "f32", Offset: 64, Bytes: 16, Tensor: "sum",
			Before: []Copy{{From: 0, To: 64, Bytes: 16}}}},
		{Name: "gather", Comm: &Comm{Kind: "all_gather", Axis: "tp", DType: "f32", Source: 0, Offset: 128, Bytes: 32, Tensor: "gather"}},
		{Name: "use", Run: noop, Wait: []int{0, 1}},
		{Name: "scatter", Comm: &Comm{Kind: "reduce_scatter", Axis: "tp", Op: "max", DType: "f32", Source: 0, Offset: 192, Bytes: 8, Tensor: "scatter"}},
		{Name: "slice", Comm: &Comm{Kind: "shard_slice", Axis: "tp", DType: "f32", Source: 0, Offset: 256, Bytes: 8, Outer: 2, Stride: 8}},
		{Name: "time", Comm: &Comm{Kind: "shard_slice", Axis: "mb", DType: "f32", Source: 0, Offset: 320, Bytes: 8, Outer: 1, Stride: 16}},
	}
	world := comm.InProcess(4)
	var wg sync.WaitGroup
	for rank := range 4 {
		wg.Go(func() {
			dp, _ := world[rank].Sub("dp", []int{rank % 2, 2 + rank%2})
			tp, err := world[rank].Sub("tp", []int{rank &^ 1, rank | 1})
			if err != nil {
				t.Error(err)
				return
			}
			m, err := build(t, mesh, rank, calls, []Copy{{From: 192, To: 512, Bytes: 8}}, map[string]comm.Communicator{"dp": dp, "tp": tp})
			if err != nil {
				t.Error(err)
				return
			}
			defer m.close()
			for range 3 {
				for i := range 4 {
					floats(m, 0, 4)[i] = float32(10*rank + i)
				}
				if err := m.run(m.funcs[FuncStep], 1); err != nil {
					t.Error(err)
					return
				}
				r, other := float32(10*rank), float32(10*(rank^2))
				peer, base := float32(10*(rank|1)), float32(10*(rank&^1))
				k := float32(2 * (rank & 1))
				for _, c := range []struct {
					at   int
					want []float32
				}{
					{0, []float32{r, r + 1, r + 2, r + 3}}, {64, []float32{r + other, r + other + 2, r + other + 4, r + other + 6}},
					{128, []float32{base, base + 1, base + 2, base + 3, peer, peer + 1, peer + 2, peer + 3}},
					{192, []float32{peer + k, peer + k + 1}}, {512, []float32{peer + k, peer + k + 1}},
					{256, []float32{r + k/2, r + 2 + k/2}}, {320, []float32{r + 2, r + 3}},
				} {
					if got := floats(m, c.at, len(c.want)); !slices.Equal(got, c.want) {
						t.Errorf("rank %d at %d: %v, want %v", rank, c.at, got, c.want)
					}
				}
			}
		})
	}
	wg.Wait()
	for _, c := range world {
		c.Close()
	}
}

func TestOneRankNeedsNoCommunicator(t *testing.T) {
	calls := []Call{
		{Name: "sum", Comm: &Comm{Kind: "all_reduce", Axis: "dp", Op: "sum", DType: "f32", Offset: 64, Bytes: 16, Before: []Copy{{0, 64, 16}}}},
		{Name: "gather", Comm: &Comm{Kind: "all_gather", Axis: "dp", DType: "f32", Source: 64, Offset: 128, Bytes: 16}},
	}
	m, err := build(t, []abi.Axis{{Name: "dp", Size: 1}}, 0, calls, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	floats(m, 0, 1)[0] = 5
	if err := m.run(m.funcs[FuncStep], 0); err != nil || floats(m, 128, 1)[0] != 5 {
		t.Error(err, floats(m, 128, 1))
	}
}

func TestDamagedProgramsAreFoundBeforeTheyRun(t *testing.T) {
	ok := func(unsafe.Pointer, []int) int64 { return -1 }
	for want, c := range map[string]Call{
		"leaves the arena":           {Comm: &Comm{Kind: "all_reduce", Axis: "dp", DType: "f32", Offset: 4000, Bytes: 100}},
		"which mesh [dp=1] does not": {Comm: &Comm{Kind: "all_reduce", Axis: "tp", DType: "f32"}},
		"no collective":              {Comm: &Comm{Kind: "all_to_none", Axis: "dp", DType: "f32"}},
		"by \"xor\"":                 {Comm: &Comm{Kind: "all_reduce", Axis: "dp", DType: "f32", Op: "xor"}},
		"not one of":                 {},
		"no earlier collective":      {Run: ok, Wait: []int{0}},
		"writes 100 bytes":           {Run: ok, Out: []Span{{Offset: 4000, Bytes: 100}}},
		"slice of":                   {Comm: &Comm{Kind: "shard_slice", Axis: "dp", Bytes: 64, Outer: 2, Stride: 4096}},
	} {
		_, err := build(t, []abi.Axis{{Name: "dp", Size: 1}}, 0, []Call{c}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "BUG") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := build(t, nil, 0, nil, []Copy{{From: -1, Bytes: 4}}, nil); err == nil {
		t.Error("a copy from before the arena")
	}
}

// A step in steady state allocates nothing: reading the batch, feeding it, the calls, the collectives, the loss.
func TestAStepAllocatesNothing(t *testing.T) {
	for _, c := range []toy{{dp: 1, micro: 1}, {dp: 1, micro: 2}} {
		m := c
		m.batch, m.dim = 8, 5
		dir, path := m.folder(t, 50)
		p := m.program(t)
		s := &session{env: &surroundings{}, watch: &watcher{}}
		var err error
		if s.cfg, err = parseFlags([]string{"--data", path, "--dir", dir}, nil); err != nil {
			t.Fatal(err)
		}
		if s.plan, err = readPlan(p, 0); err != nil {
			t.Fatal(err)
		}
		where, end, err := openMemory(p, s.plan, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer end()
		if err := s.build(p, where); err != nil {
			t.Fatal(err)
		}
		tr := &trainer{session: s}
		if err := tr.prepare(); err != nil {
			t.Fatal(err)
		}
		tr.loader.Close()
		if tr.loader, err = tr.set.Loader(data.Config{Sampler: tr.sampler, Micro: m.micro}); err != nil {
			t.Fatal(err)
		}
		n := testing.AllocsPerRun(200, func() {
			if err := tr.one(); err != nil {
				t.Fatal(err)
			}
			if _, err := tr.stop.agreed(nil); err != nil {
				t.Fatal(err)
			}
		})
		if n != 0 {
			t.Errorf("%d micro-batches: %v allocations a step", m.micro, n)
		}
		tr.close()
	}
}

func TestCopyBoxAgainstIndices(t *testing.T) {
	for _, c := range []struct{ dims, dst, dstDims, src, srcDims []int }{
		{[]int{}, nil, []int{}, nil, []int{}},
		{[]int{3}, []int{1}, []int{5}, []int{2}, []int{6}},
		{[]int{2, 3}, []int{1, 0}, []int{4, 3}, nil, []int{2, 3}},
		{[]int{2, 3}, nil, []int{2, 3}, []int{0, 3}, []int{2, 6}},
		{[]int{2, 2, 2}, []int{0, 1, 0}, []int{2, 3, 2}, []int{1, 0, 1}, []int{3, 2, 4}},
		{[]int{2, 0}, nil, []int{2, 0}, nil, []int{2, 0}},
	} {
		from, to := make([]byte, 2*elems(c.srcDims)), make([]byte, 2*elems(c.dstDims))
		for i := range from {
			from[i] = byte(i + 1)
		}
		copyBox(region{to, c.dstDims, c.dst}, region{from, c.srcDims, c.src}, c.dims, 2)
		want := make([]byte, len(to))
		for i := range elems(c.dims) {
			index, rest := make([]int, len(c.dims)), i
			for d := len(c.dims) - 1; d >= 0; d-- {
				index[d], rest = rest%c.dims[d], rest/c.dims[d]
			}
			copy(want[2*flat(index, c.dst, c.dstDims):][:2], from[2*flat(index, c.src, c.srcDims):])
		}
		if !slices.Equal(to, want) {
			t.Errorf("%+v: %v, want %v", c, to, want)
		}
	}
}

func TestFirstBad(t *testing.T) {
	f32 := []byte{0, 0, 0x80, 0x7f, 0, 0, 0xc0, 0x7f, 1, 0, 0, 0}
	f16 := []byte{0, 0x3c, 0, 0xfc, 1, 0xfc}
	bf16 := []byte{0x80, 0x7f, 0xc0, 0x7f}
	f64 := []byte{0, 0, 0, 0, 0, 0, 0xf0, 0x7f, 1, 0, 0, 0, 0, 0, 0xf0, 0xff}
	for _, c := range []struct {
		b     []byte
		dtype string
		want  string
	}{{f32, "f32", "0 1 0"}, {f16, "f16", "1 2 1"}, {bf16, "bf16", "0 1 0"}, {f64, "f64", "0 1 0"}, {f32, "i64", "-1 -1 -1"}, {f32[8:], "f32", "-1 -1 -1"}} {
		at, nan, inf := firstBad(c.b, c.dtype)
		if got := fmt.Sprint(at, nan, inf); got != c.want {
			t.Errorf("%s: %s, want %s", c.dtype, got, c.want)
		}
	}
}
