package e2e

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/internal/fixtures"
	"github.com/gtc-compiler/gtc/runtime/npz"
)

// Processes that compile one model give the same folder, to the byte, however each of them walks its maps: with GTC_LONG=1
// 20 of them for every model of ../shared/models, else 3 for two models. Where programs are not built, their sources and plans
// are all that there is.
func TestProcessesGiveTheSameBytes(t *testing.T) {
	models, times := []string{fixtures.Path(t, "models/gpt2_tiny.opt.onnx"), fixtures.Path(t, "models/convnet_bn.onnx")}, 3
	if os.Getenv("GTC_LONG") != "" {
		times = 20
		var err error
		if models, err = filepath.Glob(filepath.Join(filepath.Dir(models[0]), "*.onnx")); err != nil || len(models) < 2 {
			t.Fatal(models, err)
		}
	}
	layouts := []string{"", "--dp 2 --tp 2 --zero 1 --clip-norm 1", "--dp 2 --pp 2 --microbatches 2", "--precision bf16 --target cuda --arch sm_90"}
	for _, model := range models {
		for _, layout := range layouts {
			args := append([]string{"compile", model, "--no-build", "--batch", batchOf(t, model), "--loss", lossOf(model), "--optimizer", "adamw", "-o"}, "")
			out := len(args) - 1
			args = append(args, strings.Fields(layout)...)
			var first map[string][32]byte
			for range times {
				args[out] = filepath.Join(t.TempDir(), "out")
				if code, text := command(context.Background(), ".", nil, gtc(t), args...); code != 0 {
					t.Errorf("%s %s: not compiled: %s", filepath.Base(model), layout, text)
					break
				}
				got := contents(t, args[out])
				if first == nil {
					first = got
				}
				if !maps.Equal(got, first) {
					t.Errorf("%s %s: two processes gave two folders", filepath.Base(model), layout)
					for name := range got {
						if got[name] != first[name] {
							t.Logf("%s differs", name)
						}
					}
					break
				}
			}
		}
	}
}

// lossOf is the loss with which a shared model is trained.
func lossOf(model string) string {
	switch base := filepath.Base(model); {
	case strings.HasPrefix(base, "unet_tiny"):
		return "mse"
	case strings.HasPrefix(base, "gpt_loss_inside"):
		return "graph"
	}
	return "cross_entropy"
}

// batchOf is the number of samples of a shared model's reference, which a file with a fixed batch has too.
func batchOf(t *testing.T, model string) string {
	t.Helper()
	f, err := npz.Open(filepath.Join(filepath.Dir(model), strings.SplitN(filepath.Base(model), ".", 2)[0]+".npz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h, err := f.Header("in0")
	if err != nil {
		t.Fatal(err)
	}
	return strconv.Itoa(h.Shape[0])
}
