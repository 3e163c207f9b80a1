package compiler

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// adaptedTour is the tour's model of two layers, one with an adapter; a bias is trained because --train names it.
func adaptedTour() *Options {
	o := Defaults()
	o.Model, o.Import.Batch, o.Pass.Loss = "../docs/tour.onnx", 8, "cross_entropy"
	o.Import.Roles = []onnx.RoleRule{{Train: true, Glob: "out.bias"}}
	o.Pass.LoRA = pass.LoRA{Rank: 2, Targets: []string{"hidden"}}
	return &o
}

// TestAdaptedParameters: compiling, inspecting and reading a model back list the same parameters: the model's in their order, then the
// adapters, with roles and reasons as they are trained.
func TestAdaptedParameters(t *testing.T) {
	want := []string{"hidden.weight buffer", "hidden.bias buffer", "out.weight buffer", "out.bias parameter",
		"base_model.model.hidden.lora_A.weight parameter", "base_model.model.hidden.lora_B.weight parameter"}
	check := func(what string, params []*onnx.Parameter) {
		var got []string
		for _, p := range params {
			got = append(got, p.Name+" "+p.Role)
			reason := map[string]string{"hidden.weight": "; frozen, only adapters are trained (--lora); adapted with rank 2, scale 4", "hidden.bias": "; frozen, only adapters are trained (--lora)",
				"out.bias": "asked for by --train out.bias", want[4][:len(want[4])-len(" parameter")]: "adapter of hidden.weight (--lora)"}[p.Name]
			if !strings.HasSuffix(p.Reason, reason) {
				t.Errorf("%s: of %s it is said: %s", what, p.Name, p.Reason)
			}
			if data, err := p.Data(); err != nil || len(data) != p.Type.Bytes() {
				t.Errorf("%s: %s has %d bytes, %v", what, p.Name, len(data), err)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	res, err := Lower(adaptedTour())
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Parameters) != len(want) || len(res.Context.Adapters) != 1 {
		t.Fatalf("compiled: %v, %d adapters", res.Parameters, len(res.Context.Adapters))
	}
	info, err := Inspect(adaptedTour())
	if err != nil {
		t.Fatal(err)
	}
	check("inspected", info.Parameters)
	if a, b := info.Parameters[4].Type.Elems(), info.Parameters[5].Type.Elems(); info.Trained != int64(a+b+3) {
		t.Errorf("inspected: %d numbers are trained, want %d", info.Trained, a+b+3)
	}
	o := adaptedTour()
	m, err := onnx.Load(o.Model, o.Import)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	params, adapters, err := Adapt(m, o)
	if err != nil || len(adapters) != 1 || adapters[0].Weight != "hidden.weight" {
		t.Fatalf("read back: %+v, %v", adapters, err)
	}
	check("read back", params)
}

// TestTakenName: a tensor of the file that has the name of an adapter is not given another meaning, although no result depends on it.
func TestTakenName(t *testing.T) {
	o := adaptedTour()
	text, err := os.ReadFile(o.Model)
	if err != nil {
		t.Fatal(err)
	}
	var file onnxpb.ModelProto
	if err := file.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	name, float := pass.AdapterPrefix+"hidden.lora_B.weight", int32(onnxpb.TensorProto_FLOAT)
	file.Graph.Initializer = append(file.Graph.Initializer, &onnxpb.TensorProto{Name: &name, DataType: &float, Dims: []int64{2}, FloatData: []float32{1, 2}})
	if text, err = file.Marshal(); err != nil {
		t.Fatal(err)
	}
	o.Model = filepath.Join(t.TempDir(), "taken.onnx")
	if err := os.WriteFile(o.Model, text, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = Lower(o)
	if want := fmt.Sprintf("taken.onnx: --lora: the model has a tensor %q already; train that with --freeze '*' --train", name); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestNoSuchTarget: whoever asks for adapters of what is not there is told, with the file's name.
func TestNoSuchTarget(t *testing.T) {
	o := adaptedTour()
	o.Pass.LoRA.Targets = []string{"hiden"}
	_, compiled := Lower(o)
	_, inspected := Inspect(o)
	for _, err := range []error{compiled, inspected} {
		if !errors.As(err, new(*InputError)) || !strings.HasPrefix(err.Error(), `tour.onnx: --lora: target "hiden" matches no weight`) {
			t.Error(err)
		}
	}
	o = adaptedTour()
	o.Pass.Disable = []string{"lora"}
	if _, err := Lower(o); err == nil || !strings.Contains(err.Error(), "--disable lora is not possible: that pass does what --lora asks for") {
		t.Error(err)
	}
}
