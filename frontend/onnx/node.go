package onnx

import (
	"fmt"
	"math"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// node is one operation of the file, after functions are inlined. in and out hold value names; "" is an
// optional input left out or a result nobody wants.
type node struct {
	op     string
	opset  int64 // of the node's own scope: a model-local function may import another
	from   int64 // opset in the file when it was raised (old.go), else 0
	in     []string
	out    []string
	attrs  map[string]*onnxpb.AttributeProto
	loc    ir.Loc
	fx     fxCall // what PyTorch's exporter says the node came from; empty without metadata
	rule   string // the exporter's rewrite rule that made the node; "" for none
	proto  *onnxpb.NodeProto
	subst  scope   // names of the graph it is in, for its subgraphs
	spent  *budget // of the import that visits it
	module string  // of PyTorch's that the node is in; empty without metadata
}

// fail stops the import of a node with an error that says where. ir.Recover catches it.
func (n *node) fail(format string, args ...any) {
	panic(ir.Errorf(n.located(), format, args...))
}

// located is the node's place for messages: operator with opset, then file and line.
func (n *node) located() ir.Loc {
	l := n.loc
	l.OpType = fmt.Sprintf("%s, opset %d", printable.Line(n.op), n.inFile())
	return l
}

// inFile is the node's opset in the file.
func (n *node) inFile() int64 {
	if n.from > 0 {
		return n.from
	}
	return n.opset
}

// has reports whether input i is present.
func (n *node) has(i int) bool { return i < len(n.in) && n.in[i] != "" }

// wants reports whether result i has a name, so that somebody may read it.
func (n *node) wants(i int) bool { return i < len(n.out) && n.out[i] != "" }

func (n *node) attr(name string, typ onnxpb.AttributeProto_AttributeType) *onnxpb.AttributeProto {
	a := n.attrs[name]
	if a == nil {
		return nil
	}
	if a.GetType() != typ && a.GetType() != onnxpb.AttributeProto_UNDEFINED {
		n.fail("attribute %q is of type %s, not %s", name, a.GetType(), typ)
	}
	return a
}

// int is an integer attribute, or def when it is absent.
func (n *node) int(name string, def int) int {
	if a := n.attr(name, onnxpb.AttributeProto_INT); a != nil {
		return int(a.GetI())
	}
	return def
}

// ints is a list attribute; nil when it is absent.
func (n *node) ints(name string) []int {
	a := n.attr(name, onnxpb.AttributeProto_INTS)
	if a == nil {
		return nil
	}
	out := make([]int, len(a.Ints))
	for i, v := range a.Ints {
		out[i] = int(v)
	}
	return out
}

// float is a float attribute, or def when it is absent. A file holds 32 bits of the decimal number that was
// meant (1e-05 as 9.99999974e-06), so the shortest decimal that rounds to them is taken.
func (n *node) float(name string, def float64) float64 {
	if a := n.attr(name, onnxpb.AttributeProto_FLOAT); a != nil {
		return shortest(a.GetF())
	}
	return def
}

// str is a string attribute, or def when it is absent.
func (n *node) str(name, def string) string {
	if a := n.attr(name, onnxpb.AttributeProto_STRING); a != nil {
		return string(a.S)
	}
	return def
}

// shortest is the float64 nearest to the shortest decimal that identifies f.
func shortest(f float32) float64 {
	if math.IsInf(float64(f), 0) || math.IsNaN(float64(f)) {
		return float64(f)
	}
	var d float64
	if _, err := fmt.Sscan(fmt.Sprint(f), &d); err != nil {
		return float64(f)
	}
	return d
}

// dim normalizes a dimension index that may count from the end; size is the number of dimensions.
func (n *node) dim(d, size int) int {
	if d < -size || d >= size {
		n.fail("axis %d is outside a tensor of %d dimensions", d, size)
	}
	if d < 0 {
		d += size
	}
	return d
}
