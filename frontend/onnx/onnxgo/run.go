package onnxgo

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/export"
	"github.com/gtc-compiler/gtc/compiler/folder"
	"github.com/gtc-compiler/gtc/distributed/launch"
	gtconnx "github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"gorgonia.org/tensor"
)

// Run computes the outputs from the inputs' tensors; onnx.Model.GetOutputTensors then gives them. The program is built
// the first time, and when the dims of an input or a weight have changed.
func (g *Graph) Run() error { return g.RunContext(context.Background()) }

// RunContext is Run that ends early when ctx does.
func (g *Graph) RunContext(ctx context.Context) error {
	inputs, weights := g.leaves()
	dir, err := g.program(ctx, key(inputs, weights))
	if err != nil {
		return err
	}
	var arrays []npz.Array
	for _, n := range inputs {
		a, err := toArray(n.name, n.t)
		if err != nil {
			return fmt.Errorf("onnxgo: input %q: %w", n.name, err)
		}
		arrays = append(arrays, a)
	}
	in, out := filepath.Join(dir, "in.npz"), filepath.Join(dir, "out.npz")
	if err := npz.WriteFile(in, arrays); err != nil {
		return err
	}
	if err := g.start(ctx, dir, "--inputs", in, "--dump-forward", out); err != nil {
		return err
	}
	f, err := npz.Open(out)
	if err != nil {
		return err
	}
	defer f.Close()
	names := f.Names() // in the order of the outputs
	for i, n := range g.outputs() {
		if i >= len(names) {
			return fmt.Errorf("onnxgo: the program gave %d outputs, the graph has %d", len(names), len(g.outputs()))
		}
		if n.t, err = read(f, names[i]); err != nil {
			return fmt.Errorf("onnxgo: output %q: %w", n.name, err)
		}
	}
	return nil
}

// read takes one array of a file as a tensor.
func read(f *npz.File, name string) (tensor.Tensor, error) {
	a, err := f.Read(name)
	if err != nil {
		return nil, err
	}
	for i := range elements {
		if elements[i].name == a.DType {
			return fromBytes(&elements[i], a.Shape, a.Data)
		}
	}
	return nil, fmt.Errorf("element type %s is not one of onnx-go's", a.DType)
}

// key names what a program was built for: the types of the inputs, and which weights were set how often.
func key(inputs, weights []*Node) string {
	var b strings.Builder
	for _, n := range inputs {
		if n.t != nil {
			fmt.Fprintf(&b, "%q %v%v ", n.name, n.t.Dtype(), n.t.Shape())
		}
	}
	for _, n := range weights {
		fmt.Fprintf(&b, "%d ", n.times)
	}
	return b.String()
}

// program builds the program that infers with the weights as they are, unless it is there.
func (g *Graph) program(ctx context.Context, key string) (dir string, err error) {
	if g.built == key && g.infers != "" {
		return g.infers, nil
	}
	model, err := g.model(0)
	if err != nil {
		return "", err
	}
	if dir, err = g.folder("infer"); err != nil {
		return "", err
	}
	if _, err := g.compile(ctx, dir, model, pass.Options{Loss: pass.NoLoss}, gtconnx.Options{}); err != nil {
		return "", err
	}
	if g.own && g.infers != "" {
		os.RemoveAll(g.infers)
	}
	g.built, g.infers = key, dir // the last one only: a program holds the weights
	return dir, nil
}

// folder makes a new folder for a program.
func (g *Graph) folder(name string) (string, error) {
	if g.dir == "" {
		g.dir = g.opt.Dir
		if g.dir == "" {
			dir, err := os.MkdirTemp("", "gtc-onnxgo-")
			if err != nil {
				return "", err
			}
			g.dir, g.own = dir, true
		}
	}
	if err := os.MkdirAll(g.dir, 0o777); err != nil {
		return "", err
	}
	return os.MkdirTemp(g.dir, name+"-")
}

func (g *Graph) compile(ctx context.Context, dir string, model []byte, opt pass.Options, imp gtconnx.Options) (*compiler.Result, error) {
	path := filepath.Join(dir, "model.onnx")
	if err := os.WriteFile(path, model, 0o666); err != nil {
		return nil, err
	}
	imp.Name = "onnx-go model"
	opt.IgnoreIndex, opt.HuberDelta, opt.BucketBytes = -100, 1, 25<<20
	opt.DP, opt.Microbatches, opt.Threads = max(1, opt.DP), max(1, opt.Microbatches), g.opt.Threads
	if opt.Schedule.Name == "" {
		opt.Schedule.Name = "constant"
	}
	return compiler.Run(ctx, &compiler.Options{Model: path, Import: imp, Pass: opt, Out: filepath.Join(dir, "out"), Build: true, Source: true})
}

// start runs the program of a folder to its end.
func (g *Graph) start(ctx context.Context, dir string, args ...string) error {
	f, err := folder.Open(filepath.Join(dir, "out"))
	if err != nil {
		return err
	}
	bins, err := f.Binaries()
	if err != nil {
		return err
	}
	var told bytes.Buffer
	if g.opt.Threads > 0 {
		args = append(args, "--threads", fmt.Sprint(g.opt.Threads))
	}
	if err := launch.Local(ctx, launch.Options{Bins: bins, Args: args, Stdout: &told, Stderr: &told}); err != nil {
		return fmt.Errorf("onnxgo: %w\n%s", err, strings.TrimSpace(told.String()))
	}
	return nil
}

// Training says how to train. Dims of data: samples first.
type Training struct {
	Inputs map[string]tensor.Tensor // by input name: one array of all samples each
	Target tensor.Tensor            // of all samples; nil when the model's output is its loss
	Batch  int                      // samples of one update, over all ranks
	Steps  int                      // updates

	// Options are the loss, the optimizer, the schedule, the ranks (DP) and so on, as gtc compile takes them.
	Options pass.Options
	// Import binds and overrides roles as gtc compile's flags do; Train and Freeze are globs over weights.
	Import gtconnx.Options
	// Flags are more flags of gtc run, such as "--seed=3".
	Flags []string
}

// Train compiles the model for training, trains it on the data, and puts the trained weights into the nodes, so that Run
// and a later Train go on from them. The weights are unchanged when it fails.
func (g *Graph) Train(ctx context.Context, t *Training) error {
	model, err := g.model(t.Batch)
	if err != nil {
		return err
	}
	if t.Batch <= 0 || t.Steps <= 0 {
		return fmt.Errorf("onnxgo: training needs a batch and a number of steps, not %d and %d", t.Batch, t.Steps)
	}
	dir, err := g.folder("train")
	if err != nil {
		return err
	}
	if g.own {
		defer os.RemoveAll(dir)
	}
	if _, err := g.compile(ctx, dir, model, t.Options, t.Import); err != nil {
		return err
	}
	arrays, err := t.arrays()
	if err != nil {
		return err
	}
	data := filepath.Join(dir, "train.npz")
	if err := npz.WriteFile(data, arrays); err != nil {
		return err
	}
	args := append([]string{"--data", data, "--steps", fmt.Sprint(t.Steps)}, t.Flags...)
	if err := g.start(ctx, dir, args...); err != nil {
		return err
	}
	return g.take(dir)
}

func (t *Training) arrays() ([]npz.Array, error) {
	var arrays []npz.Array
	for name, x := range t.Inputs {
		a, err := toArray(name, x)
		if err != nil {
			return nil, fmt.Errorf("onnxgo: data of input %q: %w", name, err)
		}
		arrays = append(arrays, a)
	}
	if t.Target != nil {
		a, err := toArray("target", t.Target)
		if err != nil {
			return nil, fmt.Errorf("onnxgo: target: %w", err)
		}
		arrays = append(arrays, a)
	}
	return arrays, nil
}

// take reads the trained weights back by way of the exported model.
func (g *Graph) take(dir string) error {
	path := filepath.Join(dir, "trained.onnx")
	rep, err := export.Run(&export.Options{Source: filepath.Join(dir, "out"), Format: export.ONNX, Out: path})
	if err != nil {
		return err
	}
	if rep.Step == 0 {
		return fmt.Errorf("onnxgo: training left no checkpoint in its folder: leave --checkpoint-dir out")
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var p onnxpb.ModelProto
	if err := p.Unmarshal(data); err != nil {
		return err
	}
	_, weights := g.leaves()
	byName := map[string]*Node{}
	for _, n := range weights {
		byName[n.name] = n
	}
	for _, w := range p.Graph.Initializer {
		n := byName[w.GetName()]
		if n == nil {
			continue
		}
		e, err := protoType(n.t)
		if err != nil {
			return err
		}
		if w.RawData == nil {
			return fmt.Errorf("BUG: the exported %q holds no raw data", n.name)
		}
		dims := make([]int, len(w.Dims))
		for i, d := range w.Dims {
			dims[i] = int(d)
		}
		if n.t, err = fromBytes(e, dims, *w.RawData); err != nil {
			return fmt.Errorf("onnxgo: trained %q: %w", n.name, err)
		}
		n.times++
	}
	return nil
}
