package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/bench/compile/gpt"
	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/check"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// checked are the files of shared models that programs are made of, in what precision and layout.
var checked = []struct {
	file, precision string
	dp, tp          int
}{
	{"mlp.onnx", "fp32", 1, 1}, {"mlp.onnx", "bf16", 1, 1}, {"mlp.onnx", "tf32", 1, 1}, {"mlp.onnx", "fp16", 1, 1},
	{"convnet_bn.onnx", "fp32", 1, 1}, {"convnet_bn.onnx", "bf16", 1, 1},
	{"gpt2_tiny.opt.onnx", "fp32", 1, 1}, {"gpt2_tiny.opt.onnx", "bf16", 1, 1}, {"gpt2_tiny.opt.onnx", "fp16", 1, 1},
	{"gpt_loss_inside.onnx", "fp32", 1, 1}, {"gpt_loss_inside.onnx", "bf16", 1, 1}, {"gpt_loss_inside.onnx", "fp32", 2, 2},
	{"llama_tiny.opt.onnx", "fp32", 1, 1}, {"llama_tiny.opt.onnx", "bf16", 1, 1},
	{"bert_tiny.onnx", "fp32", 1, 1}, {"bert_tiny.onnx", "bf16", 1, 1},
	{"lstm_lm.onnx", "fp32", 1, 1}, {"unet_tiny.onnx", "fp32", 1, 1}, {"unet_tiny.onnx", "bf16", 1, 1},
	{"timm_test_resnet.onnx", "fp32", 1, 1}, {"timm_test_vit.onnx", "fp32", 1, 1}, {"timm_test_vit.onnx", "bf16", 1, 1},
}

// models builds them, and lists the checks for run.sh.
func (k *kit) models(ctx context.Context) error {
	var list strings.Builder
	for _, c := range checked {
		name, _, _ := strings.Cut(c.file, ".")
		ref := filepath.Join(k.shared, "models", name+".npz")
		o := &compiler.Options{Model: filepath.Join(k.shared, "models", c.file), Out: k.folder(name, c.precision, c.dp*c.tp)}
		o.Pass = pass.Options{Target: pass.CUDA, Arch: k.archs, Precision: c.precision, IgnoreIndex: -100, DP: c.dp, TP: c.tp}
		if err := check.Bind(o, ref); err != nil {
			return err
		}
		o.Pass.Check, o.Pass.SyncBN = true, true
		if _, err := compiler.Several(ctx, o, check.Optimizers()); err != nil {
			return fmt.Errorf("%s: %w", c.file, err)
		}
		if err := k.strip(o.Out); err != nil {
			return err
		}
		for _, path := range []string{o.Model, ref} {
			if err := copyTo(filepath.Join(k.dir, "models", filepath.Base(path)), path); err != nil {
				return err
			}
		}
		fmt.Fprintf(&list, "%s %s %s %d %d\n", filepath.Base(o.Out), c.file, c.precision, c.dp, c.tp)
		k.say("%s", filepath.Base(o.Out))
	}
	if err := os.WriteFile(filepath.Join(k.dir, "checks"), []byte(list.String()), 0o666); err != nil {
		return err
	}
	return k.compiler(ctx)
}

// compiler builds gtc, which compares, and takes the OpenMP library along that it is linked to.
func (k *kit) compiler(ctx context.Context) error {
	out := filepath.Join(k.dir, "bin", "gtc")
	if text, err := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "./cmd/gtc").CombinedOutput(); err != nil {
		return fmt.Errorf("building gtc: %w\n%s", err, text)
	}
	text, err := exec.CommandContext(ctx, "ldd", out).Output()
	if err != nil {
		return fmt.Errorf("ldd: %w", err)
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[0], "libgomp") {
			return copyTo(filepath.Join(k.dir, "bin", f[0]), f[2])
		}
	}
	return nil
}

// benched is a model of the table. Of one that is no GPT, which tests/gpu/export.py writes, the shape tells what of it run.sh
// needs: the perceptron's layers, width and classes (Vocab), a network's classes and the size of its images (Seq).
type benched struct {
	name, kind, precision string
	batch                 int
	shape                 gpt.Config
	opt                   string
}

// table is in the order in which models are measured.
var table = []benched{
	{"gpt2", "gpt", "bf16", 32, gpt.Config{Layers: 12, Width: 768, Heads: 12, Vocab: 50304, Seq: 1024, Tied: true}, "adamw"},
	{"mlp8x512", "mlp", "fp32", 128, gpt.Config{Layers: 8, Width: 512, Vocab: 512}, "adam"},
	{"resnet50", "resnet", "bf16", 256, gpt.Config{Vocab: 1000, Seq: 224}, "sgd"},
	{"gpt1b3", "gpt", "bf16", 8, gpt.Config{Layers: 24, Width: 2048, Heads: 16, Vocab: 50304, Seq: 1024, Tied: true}, "adamw"},
}

// small stands in for the table where kernels run on this processor.
var small = []benched{
	{"gpt2", "gpt", "bf16", 2, gpt.Config{Layers: 2, Width: 64, Heads: 2, Vocab: 300, Seq: 32, Tied: true}, "adamw"},
	{"mlp8x512", "mlp", "fp32", 4, gpt.Config{Layers: 8, Width: 512, Vocab: 512}, "adam"},
	{"gpt1b3", "gpt", "bf16", 2, gpt.Config{Layers: 3, Width: 64, Heads: 2, Vocab: 500, Seq: 16, Tied: true}, "adamw"},
}

// export writes the model's file; missing says that there is no PyTorch to do it.
func (m *benched) export(ctx context.Context, path string) (missing bool, err error) {
	if m.kind == "gpt" {
		data, err := gpt.Model(m.shape)
		if err != nil {
			return false, err
		}
		return false, os.WriteFile(path, data, 0o666)
	}
	venv := os.Getenv("GTC_VENV")
	if venv == "" {
		return true, nil
	}
	text, err := exec.CommandContext(ctx, filepath.Join(venv, "bin", "python"), "tests/gpu/export.py", m.name, path).CombinedOutput()
	if err != nil {
		return false, fmt.Errorf("exporting %s: %w\n%s", m.name, err, text)
	}
	return false, nil
}

// bench compiles the models of the table, without weights: --random-weights stands in for them. The file bench lists them for
// run.sh: name, program, kind, batch, and the shape.
func (k *kit) bench(ctx context.Context) error {
	tmp, err := os.MkdirTemp("", "gtc-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	list, lines := table, ""
	if k.archs[0] == pass.Host {
		list = small
	}
	for _, m := range list {
		o := &compiler.Options{Model: filepath.Join(tmp, m.name+".onnx"), Out: k.folder(m.name, m.precision, 1)}
		if missing, err := m.export(ctx, o.Model); err != nil {
			return err
		} else if missing {
			k.say("%s is left out: GTC_VENV names no Python environment with PyTorch to export it", m.name)
			continue
		}
		o.Import.Abstract, o.Import.Batch = true, m.batch
		o.Pass = pass.Options{Target: pass.CUDA, Arch: k.archs, Precision: m.precision, Loss: "cross_entropy", IgnoreIndex: -100,
			Optimizer: pass.Optimizer{Name: m.opt, LR: 1e-4}}
		if m.opt == "sgd" {
			o.Pass.Optimizer.Momentum = 0.9
		}
		res, err := compiler.Run(ctx, o)
		if err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
		if err := k.strip(o.Out); err != nil {
			return err
		}
		c := m.shape
		lines += fmt.Sprintln(m.name, filepath.Base(o.Out), m.kind, m.batch, c.Layers, c.Width, c.Heads, c.Vocab, c.Seq)
		k.say("%s: arena of %.1f GiB", filepath.Base(o.Out), float64(res.Manifest.Programs[0].ArenaBytes)/(1<<30))
	}
	return os.WriteFile(filepath.Join(k.dir, "bench"), []byte(lines), 0o666)
}

// folder is where a program is.
func (k *kit) folder(name, precision string, ranks int) string {
	return filepath.Join(k.dir, "programs", fmt.Sprintf("%s-%s-%d", name, precision, ranks))
}

// strip leaves of a compiled folder the plan, the weights and the package of the program, and the module's other files in one
// place for all: their programs are linked into one binary, which is what makes the kit small.
func (k *kit) strip(dir string) error {
	if err := os.RemoveAll(filepath.Join(dir, "bin")); err != nil {
		return err
	}
	module := filepath.Join(k.dir, "module")
	for _, name := range []string{"go.mod", "vendor"} {
		if _, err := os.Stat(filepath.Join(module, name)); err != nil {
			if err := os.MkdirAll(module, 0o777); err != nil {
				return err
			}
			if err := os.Rename(filepath.Join(dir, name), filepath.Join(module, name)); err != nil {
				return err
			}
		}
	}
	to := filepath.Join(module, filepath.Base(dir))
	if err := errors.Join(os.RemoveAll(to), os.Rename(dir, to), os.MkdirAll(dir, 0o777)); err != nil {
		return err
	}
	for _, name := range []string{build.Marker, abi.Weights} {
		if err := os.Rename(filepath.Join(to, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(filepath.Join(to, "vendor")), os.RemoveAll(filepath.Join(to, "cmd")), os.RemoveAll(filepath.Join(to, "go.mod")))
}

// link builds bin/ranks, which is the program of whatever folder it is called in, and removes the sources.
func (k *kit) link(ctx context.Context) error {
	module := filepath.Join(k.dir, "module")
	var names []string
	entries, err := os.ReadDir(module)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if e.IsDir() && e.Name() != "vendor" && e.Name() != "all" {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	var b strings.Builder
	b.WriteString("package main\n\nimport (\n\t\"os\"\n\t\"path/filepath\"\n\n")
	for i, n := range names {
		fmt.Fprintf(&b, "\tp%d \"gtcout/%s/prog0\"\n", i, n)
	}
	b.WriteString("\n\t\"github.com/gtc-compiler/gtc/runtime/train\"\n)\n\nvar all = map[string][]*train.Program{\n")
	for i, n := range names {
		fmt.Fprintf(&b, "\t%q: p%d.Programs,\n", n, i)
	}
	b.WriteString("}\n\nfunc main() { train.Ranks(all[filepath.Base(filepath.Dir(filepath.Dir(os.Args[0])))]) }\n")
	main := filepath.Join(module, "all")
	if err := errors.Join(err, os.MkdirAll(main, 0o777), os.WriteFile(filepath.Join(main, "main.go"), []byte(b.String()), 0o666)); err != nil {
		return err
	}
	out, err := filepath.Abs(filepath.Join(k.dir, "bin", build.Command))
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", out, "./all")
	cmd.Dir, cmd.Env = module, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-mod=vendor", "GOWORK=off", "GOPROXY=off")
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("linking the programs: %w\n%s", err, text)
	}
	return os.RemoveAll(module)
}

// copyTo copies a file.
func copyTo(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o777); err != nil {
		return err
	}
	return os.WriteFile(to, data, fs.FileMode(0o755))
}
