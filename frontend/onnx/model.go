package onnx

import (
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/ir"
)

// Import builds func @forward: inputs, then parameters and buffers, then the ops of the graph; its results are
// the graph's outputs, named out0, out1, …. Unsupported operators are all reported before any work starts.
func (m *Model) Import() (*ir.Module, error) {
	res, err := m.importOnce()
	if err != nil {
		return nil, m.Located(err)
	}
	return res.module, nil
}

// importResult keeps what an import decided, for Inspect.
type importResult struct {
	module  *ir.Module
	roles   *roles.Roles
	outputs []string // of the graph, for each result; elements of a sequence repeat its name
}

func (m *Model) importOnce() (*importResult, error) {
	if m.imported != nil {
		return m.imported, nil
	}
	live := m.LiveNodes()
	if err := walk.CheckSupported(m.File, live); err != nil {
		return nil, err
	}
	if m.roles == nil { // decided once: names that it restores become inputs of nodes
		r, err := roles.Decide(m.File)
		if err != nil {
			return nil, err
		}
		m.roles = r
	}
	r := m.roles
	dims, err := m.BindDims()
	if err != nil {
		return nil, err
	}
	w := walk.NewWalker(m.File, r)
	if err := w.Run(live, dims); err != nil {
		return nil, err
	}
	w.Finish()
	m.imported = &importResult{module: &ir.Module{Funcs: []*ir.Func{w.B.F}}, roles: r, outputs: w.Outputs}
	return m.imported, nil
}

// Model is a loaded and checked ONNX file, with what importing it decided.
type Model struct {
	*model.File
	roles    *roles.Roles
	imported *importResult
}

// Load reads an ONNX file, checks it and finds its parameters. Errors name the file, and the node or tensor
// where there is one. Call Close when neither the model nor a module imported from it is needed any more.
func Load(path string, opts Options) (*Model, error) { return opened(model.Load(path, opts)) }

// Parse is Load for a model already in memory. External data is looked for in dir; none is allowed when dir
// is empty. The model keeps pointing into data.
func Parse(data []byte, dir string, opts Options) (*Model, error) {
	return opened(model.Parse(data, dir, opts))
}

// Again is the same file with other options. It is read no second time, and stays open as long as m. A file that stores tensors sparsely, which
// reading has made dense, is an error.
func (m *Model) Again(opts Options) (*Model, error) { return opened(m.File.Again(opts)) }

func opened(f *model.File, err error) (*Model, error) {
	if err != nil {
		return nil, err
	}
	return &Model{File: f}, nil
}
