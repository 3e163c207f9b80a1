// Package export takes trained parameters out of a compiled folder or a checkpoint: as an ONNX model, or as a
// safetensors state dict by PyTorch names.
package export

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/codegen/build"
	"github.com/gtc-compiler/gtc/compiler"
	"github.com/gtc-compiler/gtc/compiler/folder"
	"github.com/gtc-compiler/gtc/frontend/onnx"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/safetensors"
)

// The formats.
const (
	ONNX        = "onnx"
	Safetensors = "safetensors"
	PEFT        = "peft"
)

// Options says what to export.
type Options struct {
	Source     string // a compiled folder, or a checkpoint (a step's folder or the folder of steps)
	Checkpoint string // of a compiled folder: which checkpoint; "" the newest, or the initial weights when there is none
	Initial    bool   // take the initial weights although there are checkpoints
	Format     string // onnx, safetensors, or peft; "" as the name of Out says
	Out        string // file to write; of peft a folder
	Inference  bool   // ONNX: batch normalisation and dropout in their inference form
	MergeLoRA  bool   // state dict: the model's parameters with adapters merged, not the adapters. ONNX always merges
}

// Report says what was exported.
type Report struct {
	From    string // the file or folder that the tensors came from
	Step    int64  // updates done; -1 unknown, 0 initial weights
	Tensors int
	Bytes   int
	Format  string

	// Foreign are the tensors of a state dict whose names or layouts are not PyTorch's, which load_state_dict cannot
	// place: the exporter merged, reordered or renamed them.
	Foreign []string
	// Missing are PyTorch's parameters that the exporter folded into others or dropped.
	Missing []string
	// Absent are PyTorch's parameters and buffers that the model's file does not hold: no result depends on them, or
	// the exporter folded them.
	Absent []string
	// Adapters says that a state dict has adapters by peft's names, beside the weights below them.
	Adapters bool
	// Scoped are names in a state dict that the file does not record but the scopes of its nodes tell.
	Scoped []string
	// Random are the nodes of a model for inference that draw random numbers all the same.
	Random []string
}

// Run exports.
func Run(o *Options) (*Report, error) {
	format, err := formatOf(o)
	if err != nil {
		return nil, compiler.Input(err)
	}
	folder, from, err := resolve(o)
	if err != nil {
		return nil, compiler.Input(err)
	}
	if folder == nil && format == ONNX {
		return nil, compiler.Input(fmt.Errorf("%s is a checkpoint, and an ONNX model needs the compiled folder that made it: "+
			"gtc export GTC-OUT --checkpoint %s", o.Source, o.Source))
	}
	tensors, step, done, err := load(folder, from)
	if err != nil {
		return nil, compiler.Input(err)
	}
	defer done()
	rep := &Report{From: from, Step: step, Format: format}
	rep.count(tensors)
	if format == PEFT {
		return rep, writePEFT(folder, tensors, o, rep)
	}
	if o.MergeLoRA {
		if err := hasAdapters(folder, "--merge-lora"); err != nil {
			return nil, err
		}
	}
	if o.MergeLoRA && format == Safetensors {
		if tensors, err = mergedDict(folder, tensors); err != nil {
			return nil, err
		}
		rep.count(tensors)
	}
	if format == Safetensors {
		return rep, writeStateDict(folder, tensors, o, rep)
	}
	return rep, writeONNX(folder, tensors, o, rep)
}

func formatOf(o *Options) (string, error) {
	switch {
	case o.Format == ONNX || o.Format == Safetensors || o.Format == PEFT:
		return o.Format, nil
	case o.Format != "":
		return "", fmt.Errorf("--format must be onnx, safetensors or peft, not %q", o.Format)
	case strings.HasSuffix(o.Out, ".safetensors"):
		return Safetensors, nil
	case strings.HasSuffix(o.Out, ".onnx"):
		return ONNX, nil
	}
	return "", fmt.Errorf("%s ends in neither .onnx nor .safetensors: give --format", o.Out)
}

// resolve finds the compiled folder, if there is one, and where its tensors are.
func resolve(o *Options) (*folder.Folder, string, error) {
	dir := filepath.Clean(o.Source)
	if st, err := os.Stat(dir); err != nil {
		return nil, "", err
	} else if !st.IsDir() {
		return nil, "", fmt.Errorf("%s is neither a folder made by gtc compile nor a checkpoint", dir)
	}
	from := o.Checkpoint
	if !isFolder(dir) { // a checkpoint: DIR/checkpoints/step-N or DIR/checkpoints
		if from != "" {
			return nil, "", fmt.Errorf("%s is not a folder made by gtc compile", dir)
		}
		from = dir
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, "", err
		}
		for _, up := range []string{filepath.Dir(abs), filepath.Dir(filepath.Dir(abs))} {
			if isFolder(up) {
				f, err := folder.Open(up)
				return f, from, err
			}
		}
		return nil, from, nil
	}
	f, err := folder.Open(dir)
	if err != nil {
		return nil, "", err
	}
	if from == "" {
		from = filepath.Join(dir, "checkpoints")
		steps, err := ckpt.Steps(from)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, "", err
		}
		if len(steps) == 0 || o.Initial {
			from = filepath.Join(dir, abi.Weights)
		}
	}
	return f, from, nil
}

func isFolder(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, build.Marker))
	return err == nil
}

// load reads parameters and buffers from a checkpoint or a weights file. done gives the file back.
func load(f *folder.Folder, from string) (tensors []safetensors.Tensor, step int64, done func(), err error) {
	if strings.HasSuffix(from, ".safetensors") {
		w, err := safetensors.Open(from)
		if err != nil {
			return nil, 0, nil, err
		}
		for _, t := range w.Tensors() {
			if kept(f, t.Name) {
				tensors = append(tensors, t)
			}
		}
		return tensors, 0, func() { w.Close() }, nil
	}
	c, err := ckpt.Open(from)
	if err != nil {
		return nil, 0, nil, err
	}
	defer c.Close()
	for _, name := range c.Names() {
		if !kept(f, name) {
			continue
		}
		t, err := c.Tensor(name)
		if err != nil {
			return nil, 0, nil, err
		}
		data, err := c.ReadAll(name)
		if err != nil {
			return nil, 0, nil, err
		}
		tensors = append(tensors, safetensors.Tensor{Name: name, DType: t.DType, Shape: t.Shape, Data: data})
	}
	if len(tensors) == 0 {
		return nil, 0, nil, fmt.Errorf("%s holds no parameters of this model", from)
	}
	return tensors, c.Index().Step, func() {}, nil
}

// kept reports whether a tensor belongs to the model: not the optimizer's, not a constant of the program.
func kept(f *folder.Folder, name string) bool {
	if f == nil {
		return !abi.OfRun(name)
	}
	for p := range f.Manifest.Programs { // of a pipeline, each stage has some
		for i := range f.Manifest.Programs[p].Tensors {
			if t := &f.Manifest.Programs[p].Tensors[i]; t.Name == name {
				return t.Role == abi.RoleParam || t.Role == abi.RoleBuffer
			}
		}
	}
	return false
}

// hasAdapters refuses flag, --merge-lora or --format peft, where there are no adapters: those that a model brings along are
// parameters of its own.
func hasAdapters(f *folder.Folder, flag string) error {
	if f == nil {
		return compiler.Input(fmt.Errorf("%s needs the compiled folder, which holds the weights below the adapters", flag))
	}
	opt, err := f.Options()
	if err != nil {
		return err
	}
	if opt.Pass.LoRA.Rank == 0 {
		return compiler.Input(fmt.Errorf("%s: %s was compiled without --lora", flag, opt.Out))
	}
	return nil
}

// writeONNX puts the tensors into the model that the folder keeps, and notes in rep what it still draws.
func writeONNX(f *folder.Folder, tensors []safetensors.Tensor, o *Options, rep *Report) error {
	if _, err := f.Options(); err != nil {
		return err
	}
	m, err := imported(f)
	if err != nil {
		return err
	}
	defer m.Close()
	weights := contents(tensors)
	for name := range weights {
		if !slices.ContainsFunc(m.params, func(p *onnx.Parameter) bool { return p.Name == name }) {
			delete(weights, name)
		}
	}
	if err := m.merge(weights); err != nil {
		return compiler.Input(err)
	}
	text, err := m.Export(weights, o.Inference)
	if err != nil {
		return err
	}
	if o.Inference {
		rep.Random = m.Noise()
	}
	tmp := o.Out + ".tmp"
	if err := os.WriteFile(tmp, text, 0o666); err != nil {
		return err
	}
	return os.Rename(tmp, o.Out)
}
