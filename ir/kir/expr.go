// Package kir is the kernel IR: what one fused kernel computes, in scalar expressions over a loop
// nest, or the name of a hand-made template. codegen/c and codegen/cuda print it; they know no tensor ops.
package kir

import "github.com/gtc-compiler/gtc/ir/dtype"

// Expr is a scalar expression, evaluated once per point of an iteration space. It is immutable; shared
// subtrees are computed once.
type Expr struct {
	Op    string      // arg const index, or the name of a function (table.go)
	Args  []*Expr     // operands
	Index int         // operand number of "arg"; dimension of "index"
	Value float64     // of "const"
	DType dtype.DType // of "const", "cast" and "bitcast"; of "index" it is I64; else Invalid: the function's rule says it
}

// Arg is the element of the op's operand i at the current point.
func Arg(i int) *Expr { return &Expr{Op: "arg", Index: i} }

// Const is a literal of type d (bools are 0 or 1).
func Const(d dtype.DType, v float64) *Expr { return &Expr{Op: "const", Value: v, DType: d} }

// Index is the position along dimension dim of the op's iteration space, an I64.
func Index(dim int) *Expr { return &Expr{Op: "index", Index: dim, DType: dtype.I64} }

// Un applies a function of one operand, by its name in the table of functions.
func Un(op string, x *Expr) *Expr { return &Expr{Op: op, Args: []*Expr{x}} }

// Bin applies a function of two operands of one type, by its name in the table of functions.
func Bin(op string, x, y *Expr) *Expr { return &Expr{Op: op, Args: []*Expr{x, y}} }

// Select is x where cond (a Bool) is true, else y.
func Select(cond, x, y *Expr) *Expr { return &Expr{Op: "select", Args: []*Expr{cond, x, y}} }

// Cast converts x to type d: float to int truncates towards zero, anything to Bool is != 0.
func Cast(d dtype.DType, x *Expr) *Expr { return &Expr{Op: "cast", Args: []*Expr{x}, DType: d} }

// Kind is the way an op is computed.
type Kind uint8

// The kinds of Impl.
const (
	None      Kind = iota
	Pointwise      // Expr at every point of the result; all operands have the result's dims
	View           // the result is operand 0 seen through an affine index map: no arithmetic
	Reduce         // operand 0 reduced over Dims by ReduceOp; reduced dims stay as size 1
	Template       // a call of a hand-made kernel
	Assemble       // the result is Fill, with operands copied into boxes of it (concat, pad)
	Literal        // contents known at compile time and stored with the weights: no code
)

// Impl is how an op is computed; what fuse reads. Only the fields of its Kind are used.
type Impl struct {
	Kind Kind

	Expr []*Expr // Pointwise: one per result

	View *ViewMap // View

	ReduceOp string // Reduce: sum max min prod
	Dims     []int  // Reduce

	Template string    // Template: function name in kernels/cpu, without package
	Ints     []int     // positional integer attributes
	Floats   []float64 // positional float attributes
	Order    []int     // operands then results, as the template's pointer parameters expect; -1 is nil. Nil: in order
	Status   bool      // the template returns an int64: the first bad row or -1
	// Strided names the operands that the template reads by strides and, numbered on from them, the results that it
	// writes so: for each, the place in Ints of the stride of each dim, -1 for a dim that must be contiguous. Ints
	// holds the strides of dense ones.
	Strided map[int][]int
	// InPlace is 1+operand whose buffer a result may take over, 0 for none; InPlaceOut is the result, where it is not the first.
	InPlace, InPlaceOut int

	Fill  float64 // Assemble
	Boxes []Box   // Assemble: one per operand
}

// ViewMap says where the element of a result is in the operand: Offset + sum over result dims of
// index*Stride, in elements of a dense operand. Stride 0 repeats (broadcast). Nil Strides: a reshape, the same
// elements in the same order.
type ViewMap struct {
	Offset  int
	Strides []int
}

// Box places an operand into the result: its element [i0,i1,…] goes to result index Start[d]+i_d*Step[d].
type Box struct{ Start, Step []int }
