package e2e

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	shape "github.com/gtc-compiler/gtc/bench/compile/gpt"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// tiny is a GPT, with its weights or without.
func tiny(t *testing.T, c shape.Config, weights bool) string {
	t.Helper()
	c.Layers, c.Width, c.Heads, c.Vocab, c.Seq = 2, 32, 4, 50, 8
	if weights {
		c.Data = func(name string, elems int) []float32 {
			out := make([]float32, elems)
			for i := range out {
				out[i] = float32(0.1 * math.Sin(float64(i+7*len(name)+int(name[2]))))
			}
			return out
		}
	}
	data, err := shape.Model(c)
	if err != nil {
		t.Fatal(err)
	}
	return file(t, "model.onnx", data)
}

// A program does not depend on the contents of weights: with and without them it is the same, and nothing of the size of
// those that are absent is written.
func TestAbstractWeightsGiveTheSameProgram(t *testing.T) {
	for _, c := range []shape.Config{{}, {Separate: true}, {Tied: true}, {Separate: true, Tied: true}} {
		var programs [2][]byte
		for i, abstract := range []bool{false, true} {
			o := spec{model: tiny(t, c, !abstract), batch: 8, dp: 2, micro: 2, lr: 1e-3}.options(filepath.Join(t.TempDir(), "out"))
			o.Import.Abstract, o.Source = abstract, true
			res, err := compiler.Run(context.Background(), o)
			if err != nil {
				t.Fatal(err)
			}
			elems := 0
			for _, x := range res.Manifest.Programs[0].Tensors {
				if x.Role == "param" {
					elems += x.Bytes / 4
				}
			}
			size := shape.Config{Layers: 2, Width: 32, Heads: 4, Vocab: 50, Seq: 8, Tied: c.Tied}
			if elems != size.Parameters() {
				t.Errorf("%+v: %d elements are trained, the formula says %d", c, elems, size.Parameters())
			}
			for _, name := range []string{"step.go", "micro.go", "eval.go", "kernels.c", "launch.go"} {
				text, err := os.ReadFile(filepath.Join(res.Dir, "prog0", name))
				if err != nil {
					t.Fatal(err)
				}
				programs[i] = append(programs[i], text...)
			}
			f, err := safetensors.Open(filepath.Join(res.Dir, "weights.safetensors"))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := f.Tensor("wte.weight"); (err != nil) != abstract || res.Manifest.Abstract != abstract {
				t.Errorf("%+v, abstract %t: looking for a weight: %v; manifest says %t", c, abstract, err, res.Manifest.Abstract)
			}
			f.Close()
		}
		if !bytes.Equal(programs[0], programs[1]) {
			t.Errorf("%+v: the programs differ", c)
		}
	}
}

// A folder without weights says so, and trains on from a checkpoint of the same model with weights.
func TestAbstractFolderNeedsACheckpoint(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: builds programs")
	}
	dirs := make([]string, 2)
	for i, abstract := range []bool{false, true} {
		o := spec{model: tiny(t, shape.Config{}, !abstract), batch: 4, lr: 1e-3}.options(filepath.Join(t.TempDir(), "out"))
		o.Import.Abstract, o.Build = abstract, true
		if _, err := compiler.Run(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		dirs[i] = o.Out
	}
	tokens := filepath.Join(t.TempDir(), "tokens.bin")
	data := make([]byte, 2*400)
	for i := range 400 {
		data[2*i] = byte(i * i % 50)
	}
	if err := os.WriteFile(tokens, data, 0o666); err != nil {
		t.Fatal(err)
	}
	args := []string{"--data", tokens, "--tokens", "u16", "--checkpoint-dir", filepath.Join(t.TempDir(), "ckpt")}
	want := "the folder has no weights: it was compiled with --abstract-weights"
	fails(t, dirs[1], 2, append(args, "--steps", "4"), want)
	fails(t, dirs[1], 2, append(args, "--steps", "4", "--resume"), want)
	run(t, dirs[0], 1, append(args, "--steps", "2", "--save-every", "2")...)
	events := run(t, dirs[1], 1, append(args, "--steps", "4", "--resume")...)
	if got := losses(events); len(got) != 2 || math.IsNaN(got[1]) || got[1] > 5 {
		t.Errorf("losses after resuming: %v", got)
	}
	random := append(args[:len(args)-1:len(args)-1], "none", "--steps", "2", "--random-weights")
	events = run(t, dirs[1], 1, random...)
	if got := losses(events); len(got) != 2 || math.Abs(got[0]-math.Log(50)) > 0.1 { // no token is more likely than another
		t.Errorf("losses from random weights: %v", got)
	}
}

// GPTs of both forms go through every kind of layout, and the proof finds that the ranks' programs fit together.
func TestAbstractLayouts(t *testing.T) {
	for _, c := range []shape.Config{{}, {Separate: true, Tied: true}} {
		c.Layers, c.Width, c.Heads, c.Vocab, c.Seq = 2, 32, 4, 64, 8
		data, err := shape.Model(c)
		if err != nil {
			t.Fatal(err)
		}
		model := file(t, "model.onnx", data)
		for _, p := range []pass.Options{{TP: 2}, {TP: 2, PP: 2, SP: true, Zero: 1}, {PP: 4, Pipeline: "gpipe", Zero: 3}, {TP: 4, PP: 2, Pipeline: "zb-h1"},
			{TP: 2, PP: 2, Pipeline: "interleaved", Zero: 2}, {PP: 2, GradComm: pass.GradComm{Compress: "powersgd", Rank: 2}},
			{TP: 2, GradComm: pass.GradComm{DType: "bf16"}, Zero: 2}, {TP: 2, PP: 2, GradComm: pass.GradComm{Compress: "topk", Fraction: 0.1}},
			{TP: 2, GradComm: pass.GradComm{Period: 3}}} {
			o := spec{model: model, batch: 16, dp: 2, micro: 4, lr: 1e-3}.options(filepath.Join(t.TempDir(), "out"))
			o.Import.Abstract = true
			p.DP, p.Microbatches, p.Loss, p.IgnoreIndex, p.Optimizer, p.ClipNorm = o.Pass.DP, o.Pass.Microbatches, classify, -100, o.Pass.Optimizer, 1
			o.Pass = p
			if _, err := compiler.Run(context.Background(), o); err != nil {
				t.Errorf("%+v, tp %d, pp %d, sp %t, zero %d, %s, %+v: %v", c, p.TP, p.PP, p.SP, p.Zero, p.Pipeline, p.GradComm, err)
			}
		}
	}
}

// 175 billion parameters on 1,024 ranks, with GTC_LONG=1: eight programs, in less than two minutes and 8 GiB.
func TestLargeModel(t *testing.T) {
	if os.Getenv("GTC_LONG") == "" {
		t.Skip("175 billion parameters are NOT TESTED: GTC_LONG=1 takes some 10 s of two processors")
	}
	data, err := shape.Model(shape.GPT3)
	if err != nil {
		t.Fatal(err)
	}
	o := spec{model: file(t, "model.onnx", data), batch: 128, dp: 16, micro: 8, lr: 1e-4}.options(filepath.Join(t.TempDir(), "out"))
	o.Import.Abstract, o.Pass.TP, o.Pass.PP, o.Pass.ClipNorm = true, 8, 8, 1
	begin := time.Now()
	res, err := compiler.Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(begin)
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d ranks, %d programs in %v, resident set %.2f GiB", res.Manifest.Ranks, len(res.Manifest.Programs), took, float64(u.Maxrss)/(1<<20))
	if res.Manifest.Ranks != 1024 || len(res.Manifest.Programs) != 8 || took > 2*time.Minute || u.Maxrss > 8<<20 {
		t.Errorf("want 1024 ranks, 8 programs, at most 2 minutes and 8 GiB")
	}
}
