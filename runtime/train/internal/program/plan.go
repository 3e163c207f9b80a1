package program

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// elemSizes is the bytes of one element of each type that an arena tensor may have.
var elemSizes = map[string]int{"f64": 8, "f32": 4, "f16": 2, "bf16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1,
	"u64": 8, "u32": 4, "u16": 2, "u8": 1, "bool": 1, "f8_e4m3": 1, "f8_e4m3fnuz": 1, "f8_e5m2": 1, "f8_e5m2fnuz": 1,
	"f8_e8m0": 1, "f4_e2m1": 1, "i4": 1, "u4": 1, "i2": 1, "u2": 1}

// ElemSize is the bytes of one element of a type that an arena tensor may have; 0 for others.
func ElemSize(dtype string) int { return elemSizes[dtype] }

// Plan is the manifest as one rank sees it.
type Plan struct {
	abi.Manifest
	Rank    int
	Stages  int                    // of the pipeline; 1 without one
	Prog    *abi.Program           // this rank's, among Manifest.Programs
	Grid    mesh.Mesh              // Manifest.Mesh, to compute with
	Tensors map[string]*abi.Tensor // those of Prog by name
	Funcs   map[string]*abi.Func   // those of Prog by name
	first   int                    // index in Manifest.Programs of the first stage's program, for the optimizer that was chosen
	homes   map[string]int         // first stage that has each saved tensor, by name; made by stageOf
}

// Read decodes and checks the manifest of a program for a rank.
func Read(p *Program, rank int) (*Plan, error) {
	x := &Plan{Rank: rank, Tensors: map[string]*abi.Tensor{}, Funcs: map[string]*abi.Func{}}
	if err := json.Unmarshal(p.Plan, &x.Manifest); err != nil {
		return nil, fmt.Errorf("BUG: the plan in this program is damaged: %w", err)
	}
	if x.Version != abi.Version {
		return nil, fmt.Errorf("this program was compiled for version %d of the run-time, but this is version %d: compile again", x.Version, abi.Version)
	}
	if p.Index < 0 || p.Index >= len(x.Programs) || rank < 0 || rank >= max(x.Ranks, 1) {
		return nil, fmt.Errorf("BUG: there is no program %d of %d for rank %d of %d", p.Index, len(x.Programs), rank, x.Ranks)
	}
	x.Ranks, x.Train.DP = max(x.Ranks, 1), max(x.Train.DP, 1)
	x.Train.Microbatches, x.Train.Tokens = max(x.Train.Microbatches, 1), max(x.Train.Tokens, 1)
	x.Grid.Axes = x.Mesh
	if x.Grid.Ranks() != x.Ranks {
		return nil, fmt.Errorf("BUG: mesh %s has %d ranks, but the plan has %d", x.Grid, x.Grid.Ranks(), x.Ranks)
	}
	x.Stages = 1
	for _, k := range x.RankProgram {
		x.Stages = max(x.Stages, k+1)
	}
	x.first = p.Index - p.Index%x.Stages
	if x.first+x.Stages > len(x.Programs) || len(x.RankProgram) > 0 && x.first+x.RankProgram[rank] != p.Index {
		return nil, fmt.Errorf("BUG: rank %d runs program %d, but the plan gives the ranks programs %v of %d", rank, p.Index, x.RankProgram, len(x.Programs))
	}
	x.Prog = &x.Programs[p.Index]
	for i := range x.Prog.Tensors {
		t := &x.Prog.Tensors[i]
		if err := x.check(t); err != nil {
			return nil, err
		}
		x.Tensors[t.Name] = t
	}
	for i := range x.Prog.Funcs {
		f := &x.Prog.Funcs[i]
		x.Funcs[f.Name] = f
		for k := range f.Results {
			if err := x.check(&f.Results[k]); err != nil {
				return nil, err
			}
		}
	}
	for i := range x.Train.Data {
		if t := &x.Train.Data[i]; elemSizes[t.DType] == 0 {
			return nil, fmt.Errorf("BUG: input %q has type %q, which does not exist", t.Name, t.DType)
		}
	}
	return x, x.schedule()
}

// StagePrograms are those of this job, by stage.
func (x *Plan) StagePrograms() []abi.Program { return x.Programs[x.first : x.first+x.Stages] }

// LargestArena is the arena of a rank, the largest of those of the stages.
func (x *Plan) LargestArena() int {
	most := 0
	for _, p := range x.StagePrograms() {
		most = max(most, p.ArenaBytes)
	}
	return most
}

// stageOf is the first stage that has a tensor of that name which is saved; 0 when none has.
func (x *Plan) stageOf(name string) int {
	if x.Stages == 1 {
		return 0
	}
	if x.homes == nil {
		x.homes = map[string]int{}
		for k, p := range x.StagePrograms() {
			for i := range p.Tensors {
				t := &p.Tensors[i]
				if _, has := x.homes[t.Name]; !has && Saved(t) {
					x.homes[t.Name] = k
				}
			}
		}
	}
	return x.homes[name]
}

// Parameters counts the elements of the model's parameters, on all stages.
func (x *Plan) Parameters() int {
	n, seen := 0, map[string]bool{}
	for _, p := range x.StagePrograms() {
		for i := range p.Tensors {
			if t := &p.Tensors[i]; t.Role == abi.RoleParam && !seen[t.Name] {
				seen[t.Name] = true
				n += Elems(x.Whole(t))
			}
		}
	}
	return n
}

// Pairs lists, by lesser and greater stage, between which messages go.
func (x *Plan) Pairs() ([][2]int, error) {
	var list [][2]int
	for k, p := range x.StagePrograms() {
		for i := range p.Collectives {
			c := &p.Collectives[i]
			if !c.Kind.Message() {
				continue
			}
			if c.Axis != mesh.PipelineAxis || c.Peer == k || c.Peer < 0 || c.Peer >= x.Grid.Size(mesh.PipelineAxis) {
				return nil, fmt.Errorf("BUG: stage %d has a %s with rank %d on axis %s of mesh %s, which is not another stage", k, c.Kind, c.Peer, c.Axis, x.Grid)
			}
			if pair := [2]int{min(k, c.Peer), max(k, c.Peer)}; !slices.Contains(list, pair) {
				list = append(list, pair)
			}
		}
	}
	slices.SortFunc(list, func(a, b [2]int) int { return cmp.Or(a[0]-b[0], a[1]-b[1]) })
	return list, nil
}

// check makes sure that a tensor lies inside the arena and is as large as its type.
func (x *Plan) check(t *abi.Tensor) error {
	size, ok := elemSizes[t.DType]
	n := size * Elems(t.Dims)
	if !ok || n != t.Bytes || t.Offset < 0 || t.Offset+n > x.Prog.ArenaBytes {
		return fmt.Errorf("BUG: tensor %q %s%v of %d bytes at %d does not fit an arena of %d", t.Name, t.DType, t.Dims, t.Bytes, t.Offset, x.Prog.ArenaBytes)
	}
	return nil
}

// Elems is the number of elements of dims.
func Elems(dims []int) int {
	n := 1
	for _, d := range dims {
		n *= d
	}
	return n
}

// DP is this rank's data-parallel coordinate.
func (x *Plan) DP() int { return x.Grid.Coord(x.Rank, mesh.DataAxis) }

// axes lists the mesh axes that split dim d of t, outermost first.
func axes(t *abi.Tensor, d int) []string {
	if d >= len(t.ShardAxes) || t.ShardAxes[d] == "" {
		return nil
	}
	return strings.Split(t.ShardAxes[d], ",")
}

// Whole is the dims of the tensor that t is a part of.
func (x *Plan) Whole(t *abi.Tensor) []int {
	if len(t.ShardAxes) == 0 {
		return t.Dims
	}
	if len(t.Global) == len(t.Dims) {
		return t.Global
	}
	dims := slices.Clone(t.Dims)
	for d := range dims {
		for _, axis := range axes(t, d) {
			dims[d] *= x.Size(axis)
		}
	}
	return dims
}

// Start is where in the whole tensor the part of a rank begins, in a micro-batch.
func (x *Plan) Start(t *abi.Tensor, rank, micro int) []int {
	at := make([]int, len(t.Dims))
	for d := range t.Dims {
		k := 0
		for _, axis := range axes(t, d) {
			c := x.Grid.Coord(rank, axis)
			if axis == mesh.TimeAxis {
				c = micro
			}
			k = k*x.Size(axis) + c
		}
		at[d] = k * t.Dims[d]
	}
	return at
}

// Size is the extent of a mesh axis.
func (x *Plan) Size(axis string) int {
	if axis == mesh.TimeAxis {
		return x.Train.Microbatches
	}
	return x.Grid.Size(axis)
}

// Owner reports whether, of the ranks that hold the same part of t, this rank is the first.
func (x *Plan) Owner(t *abi.Tensor) bool {
	var split []string
	for d := range t.Dims {
		split = append(split, axes(t, d)...)
	}
	split = append(split, t.PerRank...)
	for _, a := range x.Grid.Axes {
		first := 0
		if a.Name == mesh.PipelineAxis {
			first = x.stageOf(t.Name)
		}
		if a.Name != mesh.TimeAxis && !slices.Contains(split, a.Name) && x.Grid.Coord(x.Rank, a.Name) != first {
			return false
		}
	}
	return true
}

// Entries is how many ranks have contents of their own for t, and which of them this one is; 1 and 0 for most tensors.
func (x *Plan) Entries(t *abi.Tensor) (n, k int) {
	n = 1
	for _, axis := range t.PerRank {
		if axis == mesh.TimeAxis {
			continue
		}
		n, k = n*x.Grid.Size(axis), k*x.Grid.Size(axis)+x.Grid.Coord(x.Rank, axis)
	}
	return n, k
}

// Kept is the dims that t has in a checkpoint.
func (x *Plan) Kept(t *abi.Tensor) []int {
	n, _ := x.Entries(t)
	return Entry(t, n, x.InFiles(t))
}

// Entry puts n in front of dims when ranks have contents of their own for t.
func Entry(t *abi.Tensor, n int, dims []int) []int {
	if len(t.PerRank) == 0 {
		return dims
	}
	return append([]int{n}, dims...)
}

// Saved reports whether a tensor is part of a checkpoint.
func Saved(t *abi.Tensor) bool {
	switch t.Role {
	case abi.RoleParam, abi.RoleBuffer:
		return !t.Frozen
	case abi.RoleState:
		return !abi.Accum.Has(t.Name)
	}
	return false
}

// IsWhole reports whether t has the data of all micro-batches.
func IsWhole(t *abi.Tensor) bool { return t.Role == abi.RoleWhole }

// PartOf is which part of t micro-batch micro reads: all of them the same of what is whole.
func PartOf(t *abi.Tensor, micro int) int {
	if IsWhole(t) {
		return 0
	}
	return micro
}

// Split reports whether an axis splits any dim of t.
func Split(t *abi.Tensor, axis string) bool {
	for d := range t.Dims {
		if slices.Contains(axes(t, d), axis) {
			return true
		}
	}
	return false
}
