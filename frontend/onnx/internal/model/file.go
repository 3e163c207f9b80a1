// Package model reads ONNX files: their encoding, external data, names, functions, subgraphs and what exporters note in them.
// An untrusted file can make it return an error, never more: every limit on what a file may ask for is here.
package model

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// Versions of the format that are understood. Opset 7 (2018) is the first with NumPy broadcasting; nodes of earlier ones
// are raised to it (raise.go).
const (
	minIR    = 3
	maxIR    = 14
	minOpset = 1
	MaxOpset = 28
	MaxDim   = 1 << 31 // elements along one dimension
	maxElems = 1 << 48 // elements of one tensor, dims of 0 apart
)

// Model is a loaded and checked ONNX file. Tensor data stays in the file (memory-mapped) until it is read.
type File struct {
	// Name is the file's base name, for messages.
	Name string
	// Dir is the folder that external data must lie in; empty means the model may have none.
	Dir string
	// Proto is the decoded file. Its raw tensor data points into the mapped file: never write to it.
	Proto *onnxpb.ModelProto
	// Warnings collects what the user should know: what was assumed, what was lost in export.
	Warnings []string

	Options     Options
	standard    int64
	Nodes       []*Node                  // the graph in order, functions inlined
	InputInfos  []*onnxpb.ValueInfoProto // true inputs: initializers that older files repeat as inputs are left out
	OutputNames []string
	Inits       map[string]*Tensor
	Sparse      map[string]bool // initializers that the file stores sparsely
	densified   int             // bytes of sparse tensors that are stored densely
	InitList    []*Tensor       // in file order
	Torch       torchInfo
	Record      *Record // nil unless python/gtc exported the file
	Marks       *Record // nil unless gtc.record marked it
	external    map[string][]byte
	RandomNodes []string // nodes that draw random numbers
	absent      int      // elements of initializers without contents
	closers     []func() error
	Adopted     map[*onnxpb.NodeProto]bool // Constant nodes whose tensors are taken for initializers
	inlined     *inliner                   // what inlining came to, of the graph and all subgraphs
	bodies      map[bodyKey]*Body
}

// Load reads an ONNX file, checks it and finds its parameters. Errors name the file, and the node or tensor
// where there is one. Call Close when neither the model nor a module imported from it is needed any more.
func Load(path string, opts Options) (*File, error) {
	if path == "" {
		return nil, errors.New("no model is named: its path is empty")
	}
	if opts.Name == "" {
		opts.Name = filepath.Base(path)
	}
	if st, err := os.Stat(path); err != nil {
		return nil, err
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", opts.Name)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, unmap, err := mapFile(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", opts.Name, err)
	}
	m, err := Parse(data, filepath.Dir(path), opts)
	if err != nil {
		return nil, errors.Join(err, unmap())
	}
	m.closers = append(m.closers, unmap)
	return m, nil
}

// Parse is Load for a model already in memory. External data is looked for in dir; none is allowed when dir
// is empty. The model keeps pointing into data.
func Parse(data []byte, dir string, opts Options) (*File, error) {
	m := &File{Name: opts.Name, Dir: dir, Options: opts, external: map[string][]byte{}}
	if m.Name == "" {
		m.Name = "model"
	}
	if err := m.parse(data); err != nil {
		return nil, m.Located(err)
	}
	return m, nil
}

// Again is the same file with other options. It is read no second time, and stays open as long as m. A file that stores tensors sparsely, which
// reading has made dense, is an error.
func (m *File) Again(opts Options) (*File, error) {
	if len(m.Sparse) > 0 {
		return nil, m.Located(errors.New("it stores tensors sparsely, and is read once only"))
	}
	other := &File{Name: m.Name, Dir: m.Dir, Proto: m.Proto, Options: opts, external: m.external}
	err := other.checkVersions()
	if err == nil {
		err = other.index()
	}
	m.closers = append(m.closers, other.closers...)
	if err != nil {
		return nil, m.Located(err)
	}
	return other, nil
}

func (m *File) parse(data []byte) error {
	if len(data) == 0 {
		return errors.New("the file is empty")
	}
	if err := scan(data); err != nil {
		return err
	}
	m.Proto = &onnxpb.ModelProto{}
	if err := m.Proto.Unmarshal(data); err != nil {
		return fmt.Errorf("not a valid ONNX file: %w", err)
	}
	if m.Proto.Graph == nil {
		return errors.New("the file has no graph: it is not an ONNX model")
	}
	if err := m.checkVersions(); err != nil {
		return err
	}
	return m.index()
}

func (m *File) checkVersions() error {
	v := m.Proto.GetIrVersion()
	if v < minIR || v > maxIR {
		return fmt.Errorf("IR version %d is outside %d to %d; export again or use onnx.version_converter", v,
			minIR, maxIR)
	}
	opset, err := defaultOpset(m.Proto.OpsetImport)
	if err != nil {
		return err
	}
	m.standard = opset
	given := map[string]bool{}
	for _, o := range m.Proto.OpsetImport {
		d := StandardDomain(o.GetDomain())
		if given[d] {
			return fmt.Errorf("operator set %q is imported twice (opset_import)", d)
		}
		given[d] = true
	}
	return m.checkFunctions()
}

// checkFunctions refuses functions that are given twice, whose calls could mean either.
func (m *File) checkFunctions() error {
	given := map[string]bool{}
	for _, f := range m.Proto.Functions {
		key := functionKey(f.GetDomain(), f.GetName(), f.GetOverload())
		if given[key] {
			return fmt.Errorf("function %q of domain %q is given twice", f.GetName(), f.GetDomain())
		}
		for what, names := range map[string][]string{"input": f.Input, "result": f.Output} {
			if name, twice := givenTwice(names); twice {
				return fmt.Errorf("function %q of domain %q: %s %q is given twice", f.GetName(), f.GetDomain(), what, name)
			}
		}
		given[key] = true
	}
	return nil
}

// defaultOpset is the version of the standard operators that the imports name; 0 when they name only other domains.
func defaultOpset(imports []*onnxpb.OperatorSetIdProto) (int64, error) {
	for _, o := range imports {
		if o.GetDomain() != "" && o.GetDomain() != "ai.onnx" {
			continue
		}
		v := o.GetVersion()
		if v < minOpset || v > MaxOpset {
			return 0, fmt.Errorf("opset %d is outside %d to %d; export with opset 17 to 20, or use "+
				"onnx.version_converter", v, minOpset, MaxOpset)
		}
		return v, nil
	}
	if len(imports) > 0 {
		return 0, nil
	}
	return 0, errors.New("the file imports no operator set (opset_import is empty)")
}

// Opset is the version of the standard operator set that the model uses; 0 when it uses only other domains.
func (m *File) Opset() int { return int(m.standard) }

// Close unmaps the file and its external data. The tensors of modules imported from m must not be used after.
func (m *File) Close() error {
	var errs []error
	for _, c := range m.closers {
		errs = append(errs, c())
	}
	m.closers = nil
	return errors.Join(errs...)
}

// Located puts the file's name on an error that has none yet.
func (m *File) Located(err error) error {
	var e *ir.Error
	if errors.As(err, &e) && e == err {
		if e.File == "" {
			e.File = m.Name
		}
		return e
	}
	return fmt.Errorf("%s: %w", m.Name, err)
}

// Warn tells the user something, once.
func (m *File) Warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	for _, w := range m.Warnings {
		if w == text {
			return
		}
	}
	m.Warnings = append(m.Warnings, text)
}

// mapExternal maps a file beside the model. The name must be relative and stay inside the model's folder,
// also through symbolic links (os.Root refuses those that leave it).
func (m *File) mapExternal(name string) ([]byte, error) {
	if data, ok := m.external[name]; ok {
		return data, nil
	}
	if m.Dir == "" {
		return nil, errors.New("external data is not allowed here")
	}
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("external data %q is outside the model's folder", name)
	}
	root, err := os.OpenRoot(m.Dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	if st, err := root.Stat(name); err != nil {
		return nil, fmt.Errorf("external data %q: %w", name, err)
	} else if !st.Mode().IsRegular() {
		return nil, fmt.Errorf("external data %q is not a regular file", name)
	}
	f, err := root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("external data %q: %w", name, err)
	}
	defer f.Close()
	data, unmap, err := mapFile(f)
	if err != nil {
		return nil, err
	}
	m.external[name] = data
	m.closers = append(m.closers, unmap)
	return data, nil
}

// Elements multiplies dims, refusing negative ones and counts that do not fit.
func Elements(dims []int) (int, error) {
	n := 1
	if len(dims) > MaxRank {
		return 0, fmt.Errorf("%d dimensions are more than %d", len(dims), MaxRank)
	}
	for _, d := range dims {
		if d < 0 || d > MaxDim {
			return 0, fmt.Errorf("dimension %d is outside 0 to %d", d, MaxDim)
		}
		if d != 0 && n > maxElems/d {
			return 0, fmt.Errorf("dims %v hold more elements than can be addressed", dims)
		}
		n *= max(d, 1)
	}
	if slices.Contains(dims, 0) {
		return 0, nil
	}
	return n, nil
}

// Noise lists the nodes other than Dropout that draw random numbers, dropouts that are spelled out among them: a file that Export
// writes for inference still has them. Import must have succeeded.
func (m *File) Noise() []string { return m.RandomNodes }
