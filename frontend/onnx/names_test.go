package onnx

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
)

// unmatched lists reference gradients for which a file cannot have a parameter of that name and shape.
var unmatched = map[string][]string{
	"gpt2_tiny.dynamo.onnx":    {"m.transformer.wte.weight"}, // tied: the file calls it lm_head.weight
	"gpt2_tiny.opt.onnx":       {"m.transformer.wpe.weight", "m.transformer.wte.weight"},
	"gpt_loss_inside.opt.onnx": {"pe"}, // folded with its slice
	"bert_tiny.opt.onnx":       {"m.bert.embeddings.position_embeddings.weight"},
	"convnet_bn.opt.onnx":      {"1.bias", "1.weight", "5.bias", "5.weight"},
}

// TestNames compares parameters with the names and shapes of PyTorch's gradients: what is trained is exactly the
// model's parameters, whatever the exporter did to the names.
func TestNames(t *testing.T) {
	dir := fixtures.Path(t, "models")
	files, _ := filepath.Glob(filepath.Join(dir, "*.onnx"))
	for _, file := range files {
		base := filepath.Base(file)
		if base == "timm_test_resnet.opt.onnx" {
			continue
		}
		name, _, _ := strings.Cut(base, ".")
		m, err := Load(file, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.Inspect(); err != nil {
			t.Fatal(err)
		}
		have := map[string][]int{}
		for _, p := range m.Parameters() {
			if p.Role == RoleParameter {
				have[p.Name] = p.Dims
			}
		}
		var missing []string
		for key, g := range readNpz(t, filepath.Join(dir, name+".npz"), func(n string) bool { return strings.HasPrefix(n, "grad/") }) {
			key = strings.TrimPrefix(key, "grad/")
			if dims, ok := have[key]; !ok || !slices.Equal(dims, g.Type.Dims) {
				missing = append(missing, key)
			}
			delete(have, key)
		}
		slices.Sort(missing)
		if !slices.Equal(missing, unmatched[base]) {
			t.Errorf("%s: no parameter for %v, expected %v; parameters left over: %v", base, missing, unmatched[base], have)
		}
		if len(have) > len(missing) {
			t.Errorf("%s: trains %v, which have no gradient in the reference", base, have)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
