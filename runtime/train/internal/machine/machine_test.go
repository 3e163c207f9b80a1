package machine

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/cpu"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// build makes the machine of one rank for calls of a function "step" on a mesh, with an arena of 4096 bytes.
func build(t testing.TB, mesh []abi.Axis, rank int, calls []program.Call, copies []program.Copy, groups map[string]comm.Communicator) (*Machine, error) {
	t.Helper()
	total := 1
	for _, a := range mesh {
		if a.Name != "mb" {
			total *= a.Size
		}
	}
	text, err := json.Marshal(abi.Manifest{Version: abi.Version, Ranks: total, Mesh: mesh, Train: abi.Train{Microbatches: 2},
		Programs: []abi.Program{{ArenaBytes: 4096, Funcs: []abi.Func{{Name: abi.FuncStep}}}}})
	if err != nil {
		t.Fatal(err)
	}
	p := &program.Program{Plan: text, Funcs: map[string][]program.Call{abi.FuncStep: calls}, Copies: map[string][]program.Copy{abi.FuncStep: copies}}
	x, err := program.Read(p, rank)
	if err != nil {
		t.Fatal(err)
	}
	return New(p, x, onProcessor(t, 4096), ranks.Network{Axes: groups})
}

// onProcessor is an arena of n bytes on the processor that the test runs on.
func onProcessor(t testing.TB, n int) Memory {
	t.Helper()
	dev, err := cpu.Open(nil, device.Options{ArenaBytes: n})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return Memory{Dev: dev, Local: dev.(device.Local), large: n}
}

func floats(m *Machine, offset, n int) []float32 {
	return unsafe.Slice((*float32)(unsafe.Pointer(&m.Local.Bytes(offset, 4*n)[0])), n)
}

// On a mesh of 2 x 2 ranks: a reduction along one axis, a gather and a scatter along the other, each waited for where
// it is used, and slices by rank and by micro-batch.
func TestCollectivesAlongAxes(t *testing.T) {
	mesh := []abi.Axis{{Name: "dp", Size: 2}, {Name: "tp", Size: 2}}
	noop := func(unsafe.Pointer, []int) int64 { return -1 }
	calls := []program.Call{
		{Name: "sum", Comm: &program.Comm{Kind: "all_reduce", Axis: "dp", Op: "sum", DType: "f32", Offset: 64, Bytes: 16, Tensor: "sum",
			Before: []program.Copy{{From: 0, To: 64, Bytes: 16}}}},
		{Name: "gather", Comm: &program.Comm{Kind: "all_gather", Axis: "tp", DType: "f32", Source: 0, Offset: 128, Bytes: 32, Tensor: "gather"}},
		{Name: "use", Run: noop, Wait: []int{0, 1}},
		{Name: "scatter", Comm: &program.Comm{Kind: "reduce_scatter", Axis: "tp", Op: "max", DType: "f32", Source: 0, Offset: 192, Bytes: 8, Tensor: "scatter"}},
		{Name: "slice", Comm: &program.Comm{Kind: "shard_slice", Axis: "tp", DType: "f32", Source: 0, Offset: 256, Bytes: 8, Outer: 2, Stride: 8}},
		{Name: "time", Comm: &program.Comm{Kind: "shard_slice", Axis: "mb", DType: "f32", Source: 0, Offset: 320, Bytes: 8, Outer: 1, Stride: 16}},
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
			m, err := build(t, mesh, rank, calls, []program.Copy{{From: 192, To: 512, Bytes: 8}}, map[string]comm.Communicator{"dp": dp, "tp": tp})
			if err != nil {
				t.Error(err)
				return
			}
			defer m.Close()
			for range 3 {
				for i := range 4 {
					floats(m, 0, 4)[i] = float32(10*rank + i)
				}
				if err := m.Run(m.Funcs[abi.FuncStep], 1); err != nil {
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
	calls := []program.Call{
		{Name: "sum", Comm: &program.Comm{Kind: "all_reduce", Axis: "dp", Op: "sum", DType: "f32", Offset: 64, Bytes: 16, Before: []program.Copy{{From: 0, To: 64, Bytes: 16}}}},
		{Name: "gather", Comm: &program.Comm{Kind: "all_gather", Axis: "dp", DType: "f32", Source: 64, Offset: 128, Bytes: 16}},
	}
	m, err := build(t, []abi.Axis{{Name: "dp", Size: 1}}, 0, calls, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	floats(m, 0, 1)[0] = 5
	if err := m.Run(m.Funcs[abi.FuncStep], 0); err != nil || floats(m, 128, 1)[0] != 5 {
		t.Error(err, floats(m, 128, 1))
	}
}

func TestDamagedProgramsAreFoundBeforeTheyRun(t *testing.T) {
	ok := func(unsafe.Pointer, []int) int64 { return -1 }
	for want, c := range map[string]program.Call{
		"leaves the arena":           {Comm: &program.Comm{Kind: "all_reduce", Axis: "dp", DType: "f32", Offset: 4000, Bytes: 100}},
		"which mesh [dp=1] does not": {Comm: &program.Comm{Kind: "all_reduce", Axis: "tp", DType: "f32"}},
		"no collective":              {Comm: &program.Comm{Kind: "all_to_none", Axis: "dp", DType: "f32"}},
		"by \"xor\"":                 {Comm: &program.Comm{Kind: "all_reduce", Axis: "dp", DType: "f32", Op: "xor"}},
		"must be either":             {},
		"not an earlier collective":  {Run: ok, Wait: []int{0}},
		"writes 100 bytes":           {Run: ok, Out: []program.Span{{Offset: 4000, Bytes: 100}}},
		"slice of":                   {Comm: &program.Comm{Kind: "shard_slice", Axis: "dp", Bytes: 64, Outer: 2, Stride: 4096}},
	} {
		_, err := build(t, []abi.Axis{{Name: "dp", Size: 1}}, 0, []program.Call{c}, nil, nil)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "BUG") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if _, err := build(t, nil, 0, nil, []program.Copy{{From: -1, Bytes: 4}}, nil); err == nil {
		t.Error("a copy from before the arena")
	}
}
