package gtc_test

import (
	"context"
	"errors"
	"os"
	"testing"

	"github.com/gtc-compiler/gtc"
	"github.com/gtc-compiler/gtc/passes/pass"
)

const tour = "docs/tour.onnx"

// trained are options that compile the tour's model into dir.
func trained(dir string) gtc.Options {
	o := gtc.Defaults()
	o.Out, o.Import.Batch, o.Pass.Loss = dir, 8, "cross_entropy"
	return o
}

// TestCompileEndsWithItsContext: whether it ends before the compilation or within, nothing is written, and the error is the context's.
func TestCompileEndsWithItsContext(t *testing.T) {
	for _, at := range []string{"", "autodiff"} {
		ctx, cancel := context.WithCancel(context.Background())
		o := trained(t.TempDir())
		o.Watch = func(_ *pass.Context, p pass.Pass) error {
			if p.Name == at {
				cancel()
			} else if ctx.Err() != nil {
				t.Errorf("pass %s runs after the end", p.Name)
			}
			return nil
		}
		if at == "" {
			cancel()
		}
		_, err := gtc.Compile(ctx, tour, o)
		if made, _ := os.ReadDir(o.Out); err != context.Canceled || len(made) > 0 {
			t.Errorf("at %q: %v, %d files", at, err, len(made))
		}
	}
}

// TestNoFolder: without Out nothing is written, least of all into the folder that the process is in.
func TestNoFolder(t *testing.T) {
	model, err := os.ReadFile(tour)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("model.onnx", model, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = gtc.Compile(context.Background(), "model.onnx", trained(""))
	if made, _ := os.ReadDir("."); !errors.As(err, new(*gtc.InputError)) || len(made) != 1 {
		t.Errorf("%v, %d files", err, len(made))
	}
}

// TestInspectLimits: what Compile refuses of a model's options, Inspect refuses.
func TestInspectLimits(t *testing.T) {
	for _, o := range []gtc.Options{{Import: gtc.Import{Batch: -1}}, {Pass: gtc.Training{LoRA: gtc.LoRA{Rank: -1}}}} {
		if _, err := gtc.Inspect(tour, o); !errors.As(err, new(*gtc.InputError)) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
