package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	shape "github.com/gtc-compiler/gtc/bench/compile/gpt"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// withDropout puts a dropout behind the matrix products of a model.
func withDropout(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &onnxpb.ModelProto{}
	if err := m.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	ptr := func(s string) *string { return &s }
	ratio, yes, of, float, boolean := "drop.ratio", "drop.training", onnxpb.Bytes{0, 0, 0x80, 0x3e}, int32(1), int32(9)
	constant := func(name string, x *onnxpb.TensorProto) *onnxpb.NodeProto {
		kind := onnxpb.AttributeProto_TENSOR
		return &onnxpb.NodeProto{OpType: ptr("Constant"), Name: ptr(name), Output: []string{name}, Attribute: []*onnxpb.AttributeProto{{Name: ptr("value"), Type: &kind, T: x}}}
	}
	nodes := []*onnxpb.NodeProto{constant(ratio, &onnxpb.TensorProto{DataType: &float, RawData: &of}), constant(yes, &onnxpb.TensorProto{DataType: &boolean, Int32Data: []int32{1}})}
	products, drops := 0, 0
	for _, n := range m.Graph.Node {
		nodes = append(nodes, n)
		if n.GetOpType() != "MatMul" {
			continue
		}
		if products++; products < 5 { // the fifth makes the logits
			out := n.Output[0]
			n.Output[0] = out + ".kept"
			nodes = append(nodes, &onnxpb.NodeProto{OpType: ptr("Dropout"), Name: ptr(out + "/drop"), Input: []string{out + ".kept", ratio, yes}, Output: []string{out}})
			drops++
		}
	}
	if drops < 3 {
		t.Fatalf("%d dropouts in a model of %d matrix products", drops, products)
	}
	m.Graph.Node = nodes
	if data, err = m.Marshal(); err != nil {
		t.Fatal(err)
	}
	return file(t, "dropout.onnx", data)
}

// tokens writes samples of random tokens for the tiny GPT.
func tokens(t *testing.T, n int) string {
	t.Helper()
	r := rand.New(rand.NewPCG(1, 2))
	var list []npz.Array
	for _, name := range []string{"tokens", "target"} {
		data := make([]byte, 0, n*8*8)
		for range n * 8 {
			data = append(data, byte(r.IntN(50)), 0, 0, 0, 0, 0, 0, 0)
		}
		list = append(list, npz.Array{Name: name, DType: "i64", Shape: []int{n, 8}, Data: data})
	}
	path := filepath.Join(t.TempDir(), "tokens.npz")
	if err := npz.WriteFile(path, list); err != nil {
		t.Fatal(err)
	}
	return path
}

// layouts are eight micro-batches in all, in time, over ranks and through stages.
var layouts = []struct {
	dp, micro, zero, pp int
	schedule            string
}{
	{1, 8, 0, 1, ""},
	{2, 4, 1, 1, ""},
	{4, 2, 2, 1, ""},
	{8, 1, 3, 1, ""},
	{2, 4, 1, 2, "1f1b"},
	{1, 8, 0, 2, "zb-h1"},
}

// TestReproducible trains a GPT with tied weights, dropout, clipping and LAMB in every layout: the checkpoints are equal to the bit, also
// after a break from which another layout goes on.
func TestReproducible(t *testing.T) {
	model, data := withDropout(t, tiny(t, shape.Config{Tied: true}, true)), tokens(t, 64)
	args := func(dir string, more ...string) []string {
		return append([]string{"--data", data, "--seed", "3", "--checkpoint-dir", dir}, more...)
	}
	out := t.TempDir()
	var want string
	for i, l := range layouts {
		if testing.Short() && i > 0 && l.zero != 3 {
			continue
		}
		name := fmt.Sprintf("dp%d mb%d zero%d pp%d %s", l.dp, l.micro, l.zero, l.pp, l.schedule)
		o := spec{model: model, batch: 16, dp: l.dp, micro: l.micro, lr: 1e-2}.options(filepath.Join(out, fmt.Sprint("out", i)))
		o.Pass.Optimizer.Name = "lamb" // a norm for each parameter, beside the one of all gradients
		o.Pass.Zero, o.Pass.PP, o.Pass.Pipeline, o.Pass.ClipNorm, o.Pass.Reproducible, o.Build = l.zero, l.pp, l.schedule, 0.5, true, true
		res, err := compiler.Run(context.Background(), o)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		dir := filepath.Join(out, fmt.Sprint("checkpoints", i))
		if i == 0 {
			run(t, res.Dir, l.dp*l.pp, args(dir, "--steps", "6", "--save-every", "3", "--keep", "0")...)
			want = dir
			continue
		}
		run(t, res.Dir, l.dp*l.pp, args(dir, "--steps", "6")...)
		t.Log(name)
		sameTensors(t, want, dir)
		again := filepath.Join(out, fmt.Sprint("again", i))
		run(t, res.Dir, l.dp*l.pp, args(again, "--steps", "6", "--resume="+filepath.Join(want, "step-000003"))...)
		sameTensors(t, want, again)
	}
}

// TestReproducibleRefuses: what would differ between layouts is refused when compiling, with the reason.
func TestReproducibleRefuses(t *testing.T) {
	for want, c := range map[string]struct {
		model string
		pass  pass.Options
	}{
		"must be a power of two":       {mlp, pass.Options{DP: 3, Microbatches: 2}},
		"not the same in every layout": {fixtures.Path(t, "models/convnet_bn.onnx"), pass.Options{DP: 2}},
	} {
		o := spec{model: c.model, batch: 12, dp: c.pass.DP, micro: c.pass.Microbatches, lr: 1e-2}.options(filepath.Join(t.TempDir(), "out"))
		o.Pass.PP, o.Pass.Reproducible = c.pass.PP, true
		_, err := compiler.Run(context.Background(), o)
		told(t, 2, 2, fmt.Sprint(err), want)
	}
}
