package model

import (
	"errors"
	"fmt"
	"math"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// TrainingDomain is ONNX's domain of operators that train, GradientOp the one of it that reads a result by its name.
const (
	TrainingDomain = "ai.onnx.preview.training"
	GradientOp     = TrainingDomain + ".Gradient"
)

// Node is one operation of the file, after functions are inlined. in and out hold value names; "" is an
// optional input left out or a result nobody wants.
type Node struct {
	Op     string
	Opset  int64 // of the node's own scope: a model-local function may import another
	From   int64 // opset in the file when it was raised (raise.go), else 0
	In     []string
	Out    []string
	Attrs  map[string]*onnxpb.AttributeProto
	Loc    ir.Loc
	Torch  fxCall // what PyTorch's exporter says the node came from; empty without metadata
	Rule   string // the exporter's rewrite rule that made the node; "" for none
	Proto  *onnxpb.NodeProto
	Subst  scope   // names of the graph it is in, for its subgraphs
	Spent  *Budget // of the import that visits it
	Module string  // of PyTorch's that the node is in; empty without metadata
}

// Fail stops the import of a node with an error that says where. ir.Recover catches it.
func (n *Node) Fail(format string, args ...any) {
	panic(ir.Errorf(n.Located(), format, args...))
}

// Located is the node's place for messages: operator with opset, then file and line.
func (n *Node) Located() ir.Loc {
	l := n.Loc
	l.OpType = fmt.Sprintf("%s, opset %d", printable.Line(n.Op), n.InFile())
	return l
}

// InFile is the node's opset in the file.
func (n *Node) InFile() int64 {
	if n.From > 0 {
		return n.From
	}
	return n.Opset
}

// Has reports whether input i is present.
func (n *Node) Has(i int) bool { return i < len(n.In) && n.In[i] != "" }

// Wants reports whether result i has a name, so that somebody may read it.
func (n *Node) Wants(i int) bool { return i < len(n.Out) && n.Out[i] != "" }

// Attr is an attribute of that type, nil when it is absent; one of another type fails.
func (n *Node) Attr(name string, typ onnxpb.AttributeProto_AttributeType) *onnxpb.AttributeProto {
	a := n.Attrs[name]
	if a == nil {
		return nil
	}
	if a.GetType() != typ && a.GetType() != onnxpb.AttributeProto_UNDEFINED {
		n.Fail("attribute %q is of type %s, not %s", name, a.GetType(), typ)
	}
	return a
}

// Int is an integer attribute, or def when it is absent.
func (n *Node) Int(name string, def int) int {
	if a := n.Attr(name, onnxpb.AttributeProto_INT); a != nil {
		return int(a.GetI())
	}
	return def
}

// Ints is a list attribute; nil when it is absent.
func (n *Node) Ints(name string) []int {
	a := n.Attr(name, onnxpb.AttributeProto_INTS)
	if a == nil {
		return nil
	}
	out := make([]int, len(a.Ints))
	for i, v := range a.Ints {
		out[i] = int(v)
	}
	return out
}

// Float is a float attribute, or def when it is absent. A file holds 32 bits of the decimal number that was
// meant (1e-05 as 9.99999974e-06), so the shortest decimal that rounds to them is taken.
func (n *Node) Float(name string, def float64) float64 {
	if a := n.Attr(name, onnxpb.AttributeProto_FLOAT); a != nil {
		return Shortest(a.GetF())
	}
	return def
}

// Str is a string attribute, or def when it is absent.
func (n *Node) Str(name, def string) string {
	if a := n.Attr(name, onnxpb.AttributeProto_STRING); a != nil {
		return string(a.S)
	}
	return def
}

// Shortest is the float64 nearest to the shortest decimal that identifies f.
func Shortest(f float32) float64 {
	if math.IsInf(float64(f), 0) || math.IsNaN(float64(f)) {
		return float64(f)
	}
	var d float64
	if _, err := fmt.Sscan(fmt.Sprint(f), &d); err != nil {
		return float64(f)
	}
	return d
}

// Dim normalizes a dimension index that may count from the end; size is the number of dimensions.
func (n *Node) Dim(d, size int) int {
	if d < -size || d >= size {
		n.Fail("axis %d is out of range for a tensor of %s", d, printable.Count(size, "dimension"))
	}
	if d < 0 {
		d += size
	}
	return d
}

// Floats is a list attribute; nil when it is absent.
func (n *Node) Floats(name string) []float64 {
	a := n.Attr(name, onnxpb.AttributeProto_FLOATS)
	if a == nil {
		return nil
	}
	out := make([]float64, len(a.Floats))
	for i, f := range a.Floats {
		out[i] = Shortest(f)
	}
	return out
}

// TensorAttr decodes a tensor attribute. External data in attributes is not allowed by the format.
func (n *Node) TensorAttr(a *onnxpb.AttributeProto) *ir.Array {
	if a.T == nil {
		n.Fail("attribute %q holds no tensor", a.GetName())
	}
	m := &File{}
	t, err := m.NewTensor(a.T)
	if err == nil && t.Type.Elems() > MaxFold {
		err = errors.New("the tensor is too large for an attribute; store it as an initializer")
	}
	if err != nil {
		n.Fail("attribute %q: %v", a.GetName(), err)
	}
	arr, err := t.Array()
	if err != nil {
		n.Fail("attribute %q: %v", a.GetName(), err)
	}
	return arr
}
