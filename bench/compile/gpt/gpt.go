// Package gpt makes GPT models of any size in ONNX, as PyTorch's TorchScript exporter writes them: learned positions,
// pre-norm blocks, causal attention, GELU by tanh. The weights may be left out, so that a model of any size is a small file
// (gtc compile --abstract-weights).
package gpt

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// Config is the shape of a model.
type Config struct {
	Layers, Width, Heads, Vocab, Seq int

	Separate bool // query, key and value are three layers (Linear) instead of one (GPT-2's Conv1D)
	Tied     bool // the head's weight is that of the embedding

	// Data gives the contents of a parameter with that many elements. Nil: they are external data in WeightsFile, which
	// nobody writes.
	Data func(name string, elems int) []float32
}

// WeightsFile is where a model without data has its weights.
const WeightsFile = "weights.bin"

// GPT3 is the shape of the largest GPT-3 (Brown et al. 2020, table 2.1) with a vocabulary padded to a multiple of 1024.
var GPT3 = Config{Layers: 96, Width: 12288, Heads: 96, Vocab: 51200, Seq: 2048}

// Parameters is the number of elements that c trains.
func (c Config) Parameters() int {
	d := c.Width
	n := c.Layers*(12*d*d+13*d) + (c.Vocab+c.Seq+2)*d
	if !c.Tied {
		n += c.Vocab * d
	}
	return n
}

// Model is the ONNX file of c. Its input is tokens [batch, Seq] with an open batch, its output logits [batch, Seq, Vocab].
func Model(c Config) ([]byte, error) {
	if c.Layers < 1 || c.Heads < 1 || c.Width < 1 || c.Width%c.Heads != 0 || c.Vocab < 1 || c.Seq < 1 {
		return nil, errors.New("a GPT has at least one layer, head, token and position, and its heads divide its width")
	}
	b := &builder{c: c, g: &onnxpb.GraphProto{Name: text("main_graph")}, known: map[string]bool{}}
	b.stem()
	x := "/add"
	for i := range c.Layers {
		x = b.block(i, x)
	}
	x = b.norm("ln_f", "/ln_f", x)
	head := "lm_head.weight"
	if c.Tied {
		head = "wte.weight"
	} else {
		b.parameter(head, c.Vocab, c.Width)
	}
	b.node("MatMul", "logits", []string{x, b.node("Transpose", "/lm_head/Transpose", []string{head}, ints("perm", 1, 0))})
	b.g.Input = append(b.g.Input, value("tokens", 7, 0, c.Seq))
	b.g.Output = append(b.g.Output, value("logits", 1, 0, c.Seq, c.Vocab))
	version, opset := int64(8), int64(17)
	m := &onnxpb.ModelProto{IrVersion: &version, ProducerName: text("pytorch"), Graph: b.g,
		OpsetImport: []*onnxpb.OperatorSetIdProto{{Domain: text(""), Version: &opset}}}
	return m.Marshal()
}

// builder collects a graph.
type builder struct {
	c      Config
	g      *onnxpb.GraphProto
	known  map[string]bool // constants that are there already
	offset int             // of the next parameter in WeightsFile
}

// stem embeds tokens and positions, and makes the mask.
func (b *builder) stem() {
	c := b.c
	b.parameter("wte.weight", c.Vocab, c.Width)
	b.parameter("wpe.weight", c.Seq, c.Width)
	tokens := b.node("Gather", "/wte/Gather", []string{"wte.weight", "tokens"})
	positions := b.node("Range", "/Range", []string{b.scalar(0), b.scalar(c.Seq), b.scalar(1)})
	b.node("Add", "/add", []string{tokens, b.node("Gather", "/wpe/Gather", []string{"wpe.weight", positions})})
	ones := b.node("ConstantOfShape", "/ones", []string{b.list(1, 1, c.Seq, c.Seq)}, tensorAttr("value", 9, []byte{1}, 1))
	low := b.node("Cast", "/ones/Cast", []string{ones}, integer("to", 1))
	b.node("Cast", "/mask", []string{b.node("Trilu", "/tril", []string{low}, integer("upper", 0))}, integer("to", 9))
	b.float("minimum", -math.MaxFloat32)
	b.float("scale", float32(1/math.Sqrt(float64(c.Width/c.Heads))))
}

// block is one layer; it returns its result.
func (b *builder) block(i int, x string) string {
	name := "h." + strconv.Itoa(i)
	at := "/" + name
	h := b.norm(name+".ln_1", at+"/ln_1", x)
	h = b.attention(name+".attn", at+"/attn", h)
	x = b.node("Add", at+"/Add", []string{x, h})
	h = b.norm(name+".ln_2", at+"/ln_2", x)
	h = b.linear(name+".mlp.c_fc", at+"/mlp/c_fc", h, b.c.Width, 4*b.c.Width)
	h = b.gelu(at+"/mlp/act", h)
	h = b.linear(name+".mlp.c_proj", at+"/mlp/c_proj", h, 4*b.c.Width, b.c.Width)
	return b.node("Add", at+"/Add_1", []string{x, h})
}

func (b *builder) attention(name, at, x string) string {
	c := b.c
	d := c.Width
	var parts [3]string
	if c.Separate {
		for i, p := range []string{"q_proj", "k_proj", "v_proj"} {
			parts[i] = b.linear(name+"."+p, at+"/"+p, x, d, d)
		}
	} else {
		all := b.linear(name+".c_attn", at+"/c_attn", x, d, 3*d)
		for i := range parts {
			parts[i] = fmt.Sprintf("%s/Split_output_%d", at, i)
		}
		n := b.add("Split", at+"/Split", []string{all, b.list(d, d, d)}, integer("axis", 2))
		n.Output = slices.Clone(parts[:])
	}
	for i, p := range []string{"q", "k", "v"} {
		perm := ints("perm", 0, 2, 1, 3)
		if p == "k" {
			perm = ints("perm", 0, 2, 3, 1)
		}
		h := b.node("Reshape", at+"/"+p+"/Reshape", []string{parts[i], b.list(-1, c.Seq, c.Heads, d/c.Heads)})
		parts[i] = b.node("Transpose", at+"/"+p+"/Transpose", []string{h}, perm)
	}
	s := b.node("MatMul", at+"/MatMul", []string{parts[0], parts[1]})
	s = b.node("Mul", at+"/Mul", []string{s, "scale"})
	s = b.node("Where", at+"/Where", []string{"/mask", s, "minimum"})
	s = b.node("Softmax", at+"/Softmax", []string{s}, integer("axis", -1))
	s = b.node("MatMul", at+"/MatMul_1", []string{s, parts[2]})
	s = b.node("Transpose", at+"/Transpose", []string{s}, ints("perm", 0, 2, 1, 3))
	s = b.node("Reshape", at+"/Reshape", []string{s, b.list(-1, c.Seq, d)})
	return b.linear(name+".c_proj", at+"/c_proj", s, d, d)
}

// linear is a Conv1D of GPT-2 (weight [in, out], a Gemm on rows), or a Linear (weight [out, in]) when projections are
// separate.
func (b *builder) linear(name, at, x string, in, out int) string {
	b.parameter(name+".bias", out)
	if b.c.Separate {
		b.parameter(name+".weight", out, in)
		w := b.node("Transpose", at+"/Transpose", []string{name + ".weight"}, ints("perm", 1, 0))
		return b.node("Add", at+"/Add", []string{name + ".bias", b.node("MatMul", at+"/MatMul", []string{x, w})})
	}
	b.parameter(name+".weight", in, out)
	rows := b.node("Reshape", at+"/Reshape", []string{x, b.list(-1, in)})
	rows = b.node("Gemm", at+"/Gemm", []string{rows, name + ".weight", name + ".bias"})
	return b.node("Reshape", at+"/Reshape_1", []string{rows, b.list(-1, b.c.Seq, out)})
}

func (b *builder) norm(name, at, x string) string {
	b.parameter(name+".weight", b.c.Width)
	b.parameter(name+".bias", b.c.Width)
	eps := float32(1e-5)
	kind := onnxpb.AttributeProto_FLOAT
	return b.node("LayerNormalization", at+"/LayerNormalization", []string{x, name + ".weight", name + ".bias"},
		&onnxpb.AttributeProto{Name: text("epsilon"), Type: &kind, F: &eps}, integer("axis", -1))
}

// gelu is x/2 (1 + tanh(√(2/π)(x + 0.044715 x³))).
func (b *builder) gelu(at, x string) string {
	h := b.node("Pow", at+"/Pow", []string{x, b.float("three", 3)})
	h = b.node("Mul", at+"/Mul", []string{h, b.float("cubic", 0.044715)})
	h = b.node("Add", at+"/Add", []string{x, h})
	h = b.node("Mul", at+"/Mul_1", []string{h, b.float("slope", float32(math.Sqrt(2/math.Pi)))})
	h = b.node("Add", at+"/Add_1", []string{b.node("Tanh", at+"/Tanh", []string{h}), b.float("one", 1)})
	return b.node("Mul", at+"/Mul_3", []string{b.node("Mul", at+"/Mul_2", []string{x, b.float("half", 0.5)}), h})
}

// parameter adds an initializer, with its data or a place for it.
func (b *builder) parameter(name string, dims ...int) {
	kind := int32(1)
	t := &onnxpb.TensorProto{Name: text(name), DataType: &kind}
	elems := 1
	for _, d := range dims {
		t.Dims = append(t.Dims, int64(d))
		elems *= d
	}
	if b.c.Data != nil {
		var raw onnxpb.Bytes
		for _, v := range b.c.Data(name, elems) {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		t.RawData = &raw
	} else {
		external := onnxpb.TensorProto_EXTERNAL
		t.DataLocation = &external
		for _, e := range [][2]string{{"location", WeightsFile}, {"offset", strconv.Itoa(b.offset)}, {"length", strconv.Itoa(4 * elems)}} {
			t.ExternalData = append(t.ExternalData, &onnxpb.StringStringEntryProto{Key: text(e[0]), Value: text(e[1])})
		}
	}
	b.offset += 4 * elems
	b.g.Initializer = append(b.g.Initializer, t)
}

// node adds a node with one result, called like the node, and returns it.
func (b *builder) node(op, name string, in []string, attrs ...*onnxpb.AttributeProto) string {
	b.add(op, name, in, attrs...).Output = []string{name}
	return name
}

func (b *builder) add(op, name string, in []string, attrs ...*onnxpb.AttributeProto) *onnxpb.NodeProto {
	n := &onnxpb.NodeProto{OpType: text(op), Name: text(name), Input: in, Attribute: attrs}
	b.g.Node = append(b.g.Node, n)
	return n
}

// list is a constant of 64-bit integers.
func (b *builder) list(values ...int) string {
	name := "/Constant" + fmt.Sprint(values)
	var raw []byte
	for _, v := range values {
		raw = binary.LittleEndian.AppendUint64(raw, uint64(v))
	}
	return b.constant(name, 7, raw, len(values))
}

func (b *builder) scalar(v int) string {
	return b.constant("/Constant_"+strconv.Itoa(v), 7, binary.LittleEndian.AppendUint64(nil, uint64(v)))
}

func (b *builder) float(name string, v float32) string {
	return b.constant(name, 1, binary.LittleEndian.AppendUint32(nil, math.Float32bits(v)))
}

// constant adds a Constant node once.
func (b *builder) constant(name string, kind int32, raw []byte, dims ...int) string {
	if !b.known[name] {
		b.known[name] = true
		b.node("Constant", name, nil, tensorAttr("value", kind, raw, dims...))
	}
	return name
}

func tensorAttr(name string, kind int32, raw []byte, dims ...int) *onnxpb.AttributeProto {
	data, typ := onnxpb.Bytes(raw), onnxpb.AttributeProto_TENSOR
	t := &onnxpb.TensorProto{DataType: &kind, RawData: &data}
	for _, d := range dims {
		t.Dims = append(t.Dims, int64(d))
	}
	return &onnxpb.AttributeProto{Name: text(name), Type: &typ, T: t}
}

func integer(name string, v int) *onnxpb.AttributeProto {
	i, typ := int64(v), onnxpb.AttributeProto_INT
	return &onnxpb.AttributeProto{Name: text(name), Type: &typ, I: &i}
}

func ints(name string, values ...int64) *onnxpb.AttributeProto {
	typ := onnxpb.AttributeProto_INTS
	return &onnxpb.AttributeProto{Name: text(name), Type: &typ, Ints: values}
}

// value declares an input or output; a dim of 0 is the open batch.
func value(name string, kind int32, dims ...int) *onnxpb.ValueInfoProto {
	shape := &onnxpb.TensorShapeProto{}
	for _, d := range dims {
		if d == 0 {
			shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimParam{DimParam: "batch"}})
			continue
		}
		shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: int64(d)}})
	}
	tensor := &onnxpb.TypeProto_Tensor{ElemType: &kind, Shape: shape}
	return &onnxpb.ValueInfoProto{Name: text(name), Type: &onnxpb.TypeProto{Value: &onnxpb.TypeProto_TensorType{TensorType: tensor}}}
}

func text(s string) *string { return &s }
