package onnx

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// chainModel is n nodes in a row, of several kinds, with a weight every tenth.
func chainModel(n int) *onnxpb.ModelProto {
	g := &onnxpb.GraphProto{Input: []*onnxpb.ValueInfoProto{portOf("x", f32, 2, 4)}}
	last := "x"
	for i := range n {
		name := fmt.Sprintf("v%d", i)
		switch i % 10 {
		case 0:
			w := fmt.Sprintf("block%d.weight", i)
			g.Initializer = append(g.Initializer, ramp(w, 0.01/float64(i+1), 4, 4))
			g.Node = append(g.Node, nodeOf("MatMul", name, list(last, w), list(name)))
		case 1:
			g.Node = append(g.Node, nodeOf("Tanh", name, list(last), list(name)))
		default:
			g.Node = append(g.Node, nodeOf([]string{"Sigmoid", "Relu", "Exp", "Neg"}[i%4], name, list(last), list(name)))
		}
		last = name
	}
	g.Output = []*onnxpb.ValueInfoProto{portOf(last, f32, 2, 4)}
	return modelOf(17, g)
}

// TestGrowth imports graphs of 10,000 and 100,000 nodes (-v prints the times); GTC_LONG=1 adds a million. The limit is a
// hundred times what two quiet cores need: only growth faster than the graph meets it.
func TestGrowth(t *testing.T) {
	const limit = 2 * time.Minute
	sizes := []int{10_000, 100_000}
	if os.Getenv("GTC_LONG") != "" {
		sizes = append(sizes, 1_000_000)
	}
	for _, n := range sizes {
		data := encode(chainModel(n))
		start := time.Now()
		m, err := Parse(data, "", Options{})
		if err != nil {
			t.Fatal(err)
		}
		mod, err := m.Import()
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(start)
		t.Logf("%d nodes, %d bytes: %v, %d ops", n, len(data), took, len(mod.Funcs[0].Ops))
		if took > limit {
			t.Errorf("%d nodes take %v, more than %v", n, took, limit)
		}
	}
}

// TestLargeExternalData imports a model whose 2.1 GiB of weights lie beside it. The pages of the file are mapped, not
// read: memory of the process's own grows by less than 300 MiB.
func TestLargeExternalData(t *testing.T) {
	const tensors, rows, cols = 33, 1 << 14, 1 << 10 // 64 MiB each
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "weights.bin"))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(tensors * rows * cols * 4); err != nil { // a sparse file: it takes no room on the disk
		t.Skipf("no file of 2.1 GiB can be made here: %v", err)
	}
	f.Close()
	g := &onnxpb.GraphProto{Input: []*onnxpb.ValueInfoProto{portOf("ids", onnxpb.TensorProto_INT64, 2, 8)}}
	var parts []string
	for i := range tensors {
		name := fmt.Sprintf("emb%d.weight", i)
		g.Initializer = append(g.Initializer, &onnxpb.TensorProto{Name: ptr(name), Dims: []int64{rows, cols}, DataType: ptr(int32(f32)),
			DataLocation: onnxpb.TensorProto_EXTERNAL.Enum(), ExternalData: []*onnxpb.StringStringEntryProto{
				{Key: ptr("location"), Value: ptr("weights.bin")}, {Key: ptr("offset"), Value: ptr(strconv.Itoa(i * rows * cols * 4))},
				{Key: ptr("length"), Value: ptr(strconv.Itoa(rows * cols * 4))}}})
		parts = append(parts, fmt.Sprintf("e%d", i))
		g.Node = append(g.Node, nodeOf("Gather", parts[i], list(name, "ids"), list(parts[i])))
	}
	g.Node = append(g.Node, nodeOf("Sum", "sum", parts, list("y")))
	g.Output = []*onnxpb.ValueInfoProto{portOf("y", f32, 2, 8, cols)}
	path := filepath.Join(dir, "model.onnx")
	if err := os.WriteFile(path, encode(modelOf(17, g)), 0o666); err != nil {
		t.Fatal(err)
	}
	before := ownMemory(t)
	m, err := Load(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	mod, err := m.Import()
	if err != nil {
		t.Fatal(err)
	}
	if grown := ownMemory(t) - before; grown > 300<<20 {
		t.Errorf("importing took %d MiB of memory beyond the file's pages", grown>>20)
	} else {
		t.Logf("importing %d tensors of 2.1 GiB took %d KiB of memory beyond the file's pages", len(mod.Funcs[0].Params)-1, grown>>10)
	}
}

// ownMemory is the process's resident memory that no file backs, at its peak so far as can be told: after the import nothing
// has been given back yet.
func ownMemory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		var s runtime.MemStats
		runtime.ReadMemStats(&s)
		return int(s.Sys)
	}
	_, rest, _ := bytes.Cut(status, []byte("RssAnon:"))
	kib, err := strconv.Atoi(string(bytes.Fields(rest)[0]))
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
