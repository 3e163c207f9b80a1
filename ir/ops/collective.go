package ops

import (
	"fmt"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/dtype"
)

// The mesh ops. interp.RunRanks and interp.RunPrograms give their meaning.
var (
	AllReduceDef     = ir.NewOp(string(mesh.AllReduce))
	AllGatherDef     = ir.NewOp(string(mesh.AllGather))
	ReduceScatterDef = ir.NewOp(string(mesh.ReduceScatter))
	ShardSliceDef    = ir.NewOp(string(mesh.ShardSlice))
	AllToAllDef      = ir.NewOp(string(mesh.AllToAll))
	SendDef          = ir.NewOp(string(mesh.Send))
	RecvDef          = ir.NewOp(string(mesh.Recv))
)

// AllReduceAttrs: Op is sum, max, min or prod, over the ranks along Axis.
type AllReduceAttrs struct{ Axis, Op string }

// AllGatherAttrs joins the parts of the Size ranks along Axis in dim Dim.
type AllGatherAttrs struct {
	Axis string
	Dim  int
	Size int
}

// ReduceScatterAttrs combines over the Size ranks along Axis and leaves each its part of dim Dim.
type ReduceScatterAttrs struct {
	Axis string
	Dim  int
	Size int
	Op   string
}

// ShardSliceAttrs is this rank's (or, over mesh.TimeAxis, this micro-batch's) part of dim Dim, one of Size.
type ShardSliceAttrs struct {
	Axis string
	Dim  int
	Size int
}

// AllToAllAttrs sends each of the Size ranks along Axis its part of dim Split, and joins what they send in dim Join.
type AllToAllAttrs struct {
	Axis        string
	Split, Join int
	Size        int
}

// SendAttrs: to the rank with coordinate Peer on Axis, the other coordinates being this rank's. Tag names the value on both sides.
type SendAttrs struct {
	Axis string
	Peer int
	Tag  string
}

// RecvAttrs: the value of type DType and Dims that the rank with coordinate Peer on Axis sends with that Tag.
type RecvAttrs struct {
	Axis  string
	Peer  int
	Tag   string
	DType dtype.DType
	Dims  []int
}

// AllToAll splits x in dim split among the size ranks along axis, and joins what they send in dim join.
func AllToAll(b *ir.Builder, x *ir.Value, axis string, split, join, size int) *ir.Value {
	return b.Emit(AllToAllDef, AllToAllAttrs{axis, split, join, size}, x)
}

// Send sends x to the rank with coordinate peer on axis. The result is an empty token.
func Send(b *ir.Builder, x *ir.Value, axis string, peer int, tag string) *ir.Value {
	return b.Emit(SendDef, SendAttrs{axis, peer, tag}, x)
}

// Recv is the value of type t that the rank with coordinate peer on axis sends with that tag.
func Recv(b *ir.Builder, t ir.Type, axis string, peer int, tag string) *ir.Value {
	return b.Emit(RecvDef, RecvAttrs{axis, peer, tag, t.DType, t.Dims})
}

// AllReduce combines each x over the ranks along axis by op (sum, max, min, prod); all in one message when of one type.
func AllReduce(b *ir.Builder, axis, op string, xs ...*ir.Value) []*ir.Value {
	return b.EmitN(AllReduceDef, AllReduceAttrs{axis, op}, xs...)
}

// AllGather joins x over the size ranks along axis in dim.
func AllGather(b *ir.Builder, x *ir.Value, axis string, dim, size int) *ir.Value {
	return b.Emit(AllGatherDef, AllGatherAttrs{axis, dim, size}, x)
}

// ReduceScatter combines x over the size ranks along axis by op; each keeps its part of dim.
func ReduceScatter(b *ir.Builder, x *ir.Value, axis string, dim, size int, op string) *ir.Value {
	return b.Emit(ReduceScatterDef, ReduceScatterAttrs{axis, dim, size, op}, x)
}

// ShardSlice is this rank's part of dim, one of size along axis.
func ShardSlice(b *ir.Builder, x *ir.Value, axis string, dim, size int) *ir.Value {
	return b.Emit(ShardSliceDef, ShardSliceAttrs{axis, dim, size}, x)
}

// Axis is the mesh axis over which op, a collective, works; "" of any other op.
func Axis(op *ir.Op) string {
	switch a := op.Attrs.(type) {
	case AllReduceAttrs:
		return a.Axis
	case AllGatherAttrs:
		return a.Axis
	case ReduceScatterAttrs:
		return a.Axis
	case ShardSliceAttrs:
		return a.Axis
	case AllToAllAttrs:
		return a.Axis
	case SendAttrs:
		return a.Axis
	case RecvAttrs:
		return a.Axis
	}
	return ""
}

// Combining is by what op, a collective, combines what ranks have (sum, max, min or prod); "" when it combines nothing.
func Combining(op *ir.Op) string {
	switch a := op.Attrs.(type) {
	case AllReduceAttrs:
		return a.Op
	case ReduceScatterAttrs:
		return a.Op
	}
	return ""
}

func checkMeshOp(axis, op string) error {
	if axis == "" {
		return fmt.Errorf("has no axis")
	}
	switch op {
	case "sum", "max", "min", "prod":
		return nil
	}
	return fmt.Errorf("op is %q, but must be sum, max, min or prod", op)
}

// split is t with dim divided into size parts.
func split(t ir.Type, dim, size int) ([]ir.Type, error) {
	if err := needDim(dim, len(t.Dims)); err != nil {
		return nil, err
	}
	if size < 1 || t.Dims[dim]%size != 0 {
		return wrong("dim %d of size %d cannot be divided into %d equal parts", dim, t.Dims[dim], size)
	}
	return types(ir.T(t.DType, with(t.Dims, dim, t.Dims[dim]/size)...))
}

func init() {
	AllReduceDef.Define(ir.Rules{Attrs: AllReduceAttrs{}, Operands: -1, Collective: mesh.AllReduce,
		Facts: ir.Facts{Linear: func(op *ir.Op) [][]int {
			if op.Attrs.(AllReduceAttrs).Op != "sum" {
				return nil
			}
			return linearInAll(op)
		}, Combines: true, Each: true},
		Doc:    "operands combined by Op over the ranks along Axis",
		NoGrad: "made after differentiation", Samples: samples(sample(AllReduceAttrs{mesh.DataAxis, "sum"}, []int{4}, []int{2, 2})),
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			a := op.Attrs.(AllReduceAttrs)
			if err := checkMeshOp(a.Axis, a.Op); err != nil {
				return nil, err
			}
			if len(op.In) == 0 {
				return wrong("has no operands")
			}
			var out []ir.Type
			for _, v := range op.In {
				out = append(out, v.Type)
			}
			return out, nil
		}})
	AllGatherDef.Define(ir.Rules{Attrs: AllGatherAttrs{}, Operands: 1, Collective: mesh.AllGather, Facts: ir.Facts{Move: ir.Joins},
		Doc:    "parts of the ranks along Axis joined in Dim",
		NoGrad: "made after differentiation", Samples: samples(sample(AllGatherAttrs{mesh.TensorAxis, 1, 2}, []int{4, 2})),
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			a, t := op.Attrs.(AllGatherAttrs), op.In[0].Type
			if err := checkMeshOp(a.Axis, "sum"); err != nil {
				return nil, err
			}
			if err := needDim(a.Dim, len(t.Dims)); err != nil {
				return nil, err
			}
			if a.Size < 1 {
				return wrong("joins %d parts, but must join at least 1", a.Size)
			}
			return types(ir.T(t.DType, with(t.Dims, a.Dim, t.Dims[a.Dim]*a.Size)...))
		}})
	ReduceScatterDef.Define(ir.Rules{Attrs: ReduceScatterAttrs{}, Operands: 1, Collective: mesh.ReduceScatter, Facts: ir.Facts{Combines: true},
		Doc:    "operand combined by Op over the ranks along Axis, each keeping its part of Dim",
		NoGrad: "made after differentiation", Samples: samples(sample(ReduceScatterAttrs{mesh.TensorAxis, 0, 2, "sum"}, []int{4, 2})),
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			a := op.Attrs.(ReduceScatterAttrs)
			if err := checkMeshOp(a.Axis, a.Op); err != nil {
				return nil, err
			}
			return split(op.In[0].Type, a.Dim, a.Size)
		}})
	ShardSliceDef.Define(ir.Rules{Attrs: ShardSliceAttrs{}, Operands: 1, Collective: mesh.ShardSlice, Facts: ir.Facts{Move: ir.Selects},
		Doc:    "this rank's or micro-batch's part of Dim",
		NoGrad: "made after differentiation", Samples: samples(sample(ShardSliceAttrs{mesh.DataAxis, 0, 2}, []int{4, 2})),
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			a := op.Attrs.(ShardSliceAttrs)
			if err := checkMeshOp(a.Axis, "sum"); err != nil {
				return nil, err
			}
			return split(op.In[0].Type, a.Dim, a.Size)
		}})
	AllToAllDef.Define(ir.Rules{Attrs: AllToAllAttrs{}, Operands: 1, Collective: mesh.AllToAll, Facts: ir.Facts{Move: ir.Permutes},
		Doc:    "part Split of the operand to each of the ranks along Axis, their parts joined in Join",
		NoGrad: "made after differentiation", Samples: samples(sample(AllToAllAttrs{mesh.TensorAxis, 0, 1, 2}, []int{4, 2})),
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			a := op.Attrs.(AllToAllAttrs)
			if err := checkMeshOp(a.Axis, "sum"); err != nil {
				return nil, err
			}
			if err := needDim(a.Join, len(op.In[0].Type.Dims)); err != nil {
				return nil, err
			}
			t, err := split(op.In[0].Type, a.Split, a.Size)
			if err != nil {
				return nil, err
			}
			return types(ir.T(t[0].DType, with(t[0].Dims, a.Join, t[0].Dims[a.Join]*a.Size)...))
		}})
	SendDef.Define(ir.Rules{Attrs: SendAttrs{}, Operands: 1, Collective: mesh.Send, Effect: true,
		Doc:    "operand sent to the rank at Peer on Axis; the result is an empty token",
		NoGrad: "made after differentiation", Samples: samples(sample(SendAttrs{mesh.PipelineAxis, 1, "x"}, []int{4, 2})),
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			a := op.Attrs.(SendAttrs)
			if a.Tag == "" {
				return wrong("sends without a tag")
			}
			return []ir.Type{ir.T(dtype.U8, 0)}, checkMeshOp(a.Axis, "sum")
		}})
	RecvDef.Define(ir.Rules{Attrs: RecvAttrs{}, Collective: mesh.Recv, Effect: true,
		Doc:    "what the rank at Peer on Axis sends",
		NoGrad: "made after differentiation", Samples: samples(sample(RecvAttrs{mesh.PipelineAxis, 0, "x", dtype.F32, []int{4, 2}})),
		Infer: func(op *ir.Op) ([]ir.Type, error) {
			a := op.Attrs.(RecvAttrs)
			if a.DType.Size() == 0 || a.Tag == "" {
				return wrong("receives %q as elements of type %s, which do not exist", a.Tag, a.DType)
			}
			return []ir.Type{ir.T(a.DType, a.Dims...)}, checkMeshOp(a.Axis, "sum")
		}})
}
