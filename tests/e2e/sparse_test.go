package e2e

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// Sizes of the model of bags: samples of look-ups in a table of which a batch touches few rows.
const (
	bagRows, bagWidth, bagLookups, bagBatch, bagSamples, bagClasses = 2048, 6, 4, 8, 20, 5
)

// bags is a model: the mean of the rows that a sample looks up, and a layer.
func bags(t *testing.T) string {
	t.Helper()
	r := rand.New(rand.NewPCG(5, 6))
	ptr := func(s string) *string { return &s }
	float, integer, axis, version, format := int32(1), int32(7), int64(1), int64(17), int64(8)
	weights := func(name string, dims ...int64) *onnxpb.TensorProto {
		n := int64(1)
		for _, d := range dims {
			n *= d
		}
		var raw onnxpb.Bytes
		for range n {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(float32(r.NormFloat64()/2)))
		}
		return &onnxpb.TensorProto{Name: ptr(name), DataType: &float, Dims: dims, RawData: &raw}
	}
	port := func(name string, kind *int32, dims ...int64) *onnxpb.ValueInfoProto {
		shape := &onnxpb.TensorShapeProto{}
		for _, d := range dims {
			shape.Dim = append(shape.Dim, &onnxpb.TensorShapeProto_Dimension{Value: &onnxpb.TensorShapeProto_Dimension_DimValue{DimValue: d}})
		}
		tensor := &onnxpb.TypeProto_TensorType{TensorType: &onnxpb.TypeProto_Tensor{ElemType: kind, Shape: shape}}
		return &onnxpb.ValueInfoProto{Name: ptr(name), Type: &onnxpb.TypeProto{Value: tensor}}
	}
	ints, one := onnxpb.AttributeProto_INTS, onnxpb.AttributeProto_INT
	zero := int64(0)
	m := &onnxpb.ModelProto{IrVersion: &format, OpsetImport: []*onnxpb.OperatorSetIdProto{{Version: &version}}, Graph: &onnxpb.GraphProto{
		Name:        ptr("bags"),
		Input:       []*onnxpb.ValueInfoProto{port("ids", &integer, bagBatch, bagLookups)},
		Output:      []*onnxpb.ValueInfoProto{port("logits", &float, bagBatch, bagClasses)},
		Initializer: []*onnxpb.TensorProto{weights("table.weight", bagRows, bagWidth), weights("head.weight", bagWidth, bagClasses)},
		Node: []*onnxpb.NodeProto{
			{OpType: ptr("Gather"), Name: ptr("look"), Input: []string{"table.weight", "ids"}, Output: []string{"rows"}},
			{OpType: ptr("ReduceMean"), Name: ptr("mean"), Input: []string{"rows"}, Output: []string{"bag"}, Attribute: []*onnxpb.AttributeProto{
				{Name: ptr("axes"), Type: &ints, Ints: []int64{axis}}, {Name: ptr("keepdims"), Type: &one, I: &zero}}},
			{OpType: ptr("MatMul"), Name: ptr("head"), Input: []string{"bag", "head.weight"}, Output: []string{"logits"}},
		},
	}}
	data, err := m.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "bags.onnx", data)
}

// bagged writes samples for bags: some rows come in many samples, and twice in one.
func bagged(t *testing.T) string {
	t.Helper()
	r := rand.New(rand.NewPCG(7, 8))
	list := []npz.Array{{Name: "ids", DType: "i64", Shape: []int{bagSamples, bagLookups}}, {Name: "target", DType: "i64", Shape: []int{bagSamples}}}
	for i := range bagSamples * bagLookups {
		id := uint64(r.IntN(bagRows))
		if i%3 == 0 {
			id = uint64(r.IntN(5))
		}
		list[0].Data = binary.LittleEndian.AppendUint64(list[0].Data, id)
	}
	for range bagSamples {
		list[1].Data = binary.LittleEndian.AppendUint64(list[1].Data, uint64(r.IntN(bagClasses)))
	}
	path := filepath.Join(t.TempDir(), "bags.npz")
	if err := npz.WriteFile(path, list); err != nil {
		t.Fatal(err)
	}
	return path
}

// TestSparseRanksTrainAlike: two ranks that exchange the rows that they look up, and their numbers, take the steps of one, with last
// batches that are not full; the rest of the table stays as it was. 1e-5 is what sums in another order leave in f32.
func TestSparseRanksTrainAlike(t *testing.T) {
	model, data, out := bags(t), bagged(t), t.TempDir()
	names := []string{"adagrad", "sparse_adam"}
	if os.Getenv("GTC_LONG") != "" {
		names = append(names, "sgd", "rowwise_adagrad")
	}
	for _, name := range names {
		var want []float64
		first := map[string][]float64{}
		for _, dp := range []int{1, 2} {
			o := spec{model: model, dp: dp}.options(filepath.Join(out, fmt.Sprint(name, dp)))
			o.Pass.Optimizer, o.Pass.ClipNorm, o.Build = pass.Optimizer{Name: name, LR: 0.05, Eps: 1e-8}, 0.8, true
			res, err := compiler.Run(context.Background(), o)
			if err != nil {
				t.Fatalf("%s, %d ranks: %v", name, dp, err)
			}
			sparse := false
			for _, r := range res.Context.Remarks {
				sparse = sparse || strings.Contains(r.Text, "has a sparse gradient: a step looks up 32 of its 2048 rows")
			}
			if !sparse {
				t.Errorf("%s, %d ranks: the table's gradient is dense", name, dp)
			}
			dir := filepath.Join(out, fmt.Sprint("saved", name, dp))
			got := losses(run(t, res.Dir, dp, "--data", data, "--seed", "3", "--epochs", "3", "--checkpoint-dir", dir))
			if dp == 1 {
				want = got
			} else {
				alike(t, name, got, want, 1e-5)
			}
			_, now := tensors(t, dir)
			for _, tensor := range []string{"table.weight", "head.weight"} {
				if dp == 1 {
					first[tensor] = singles(now[tensor])
				} else if d := byNorm(singles(now[tensor]), first[tensor]); !(d <= 1e-5) {
					t.Errorf("%s: %s differs by %g between one rank and two", name, tensor, d)
				}
			}
		}
		w, err := safetensors.Open(filepath.Join(out, name+"1", "weights.safetensors"))
		if err != nil {
			t.Fatal(err)
		}
		initial, err := w.Tensor("table.weight")
		if err != nil {
			t.Fatal(err)
		}
		moved, before, after := 0, singles(initial.Data), first["table.weight"]
		for i := range bagRows {
			row := func(x []float64) []float64 { return x[i*bagWidth : (i+1)*bagWidth] }
			if byNorm(row(after), row(before)) > 0 {
				moved++
			}
		}
		w.Close()
		if moved < 20 || moved > bagSamples*bagLookups {
			t.Errorf("%s: %d rows of the table have moved, of at most %d that are looked up", name, moved, bagSamples*bagLookups)
		}
	}
}

// singles are the numbers of little-endian f32 data.
func singles(data []byte) []float64 {
	x := make([]float64, len(data)/4)
	for i := range x {
		x[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:])))
	}
	return x
}

// byNorm is ‖a-b‖/‖b‖, infinite for other lengths and for nothing at all.
func byNorm(a, b []float64) float64 {
	if len(a) != len(b) || len(a) == 0 {
		return math.Inf(1)
	}
	d, n := 0.0, 0.0
	for i := range a {
		d, n = d+(a[i]-b[i])*(a[i]-b[i]), n+b[i]*b[i]
	}
	return math.Sqrt(d / n)
}
