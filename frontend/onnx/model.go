package onnx

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
// are raised to it (old.go).
const (
	minIR    = 3
	maxIR    = 14
	minOpset = 1
	maxOpset = 28
	maxDim   = 1 << 31 // elements along one dimension
	maxElems = 1 << 48 // elements of one tensor, dims of 0 apart
)

// Options says how a model's free choices are bound and overrides what the importer would decide.
type Options struct {
	// Dims binds symbolic dimensions by name (--dim seq=128).
	Dims map[string]int
	// Shapes gives the dimensions of inputs by name (--dim x=4x16): of those for which the file has none, and of open ones.
	Shapes map[string][]int `json:",omitempty"`
	// Values gives the contents of inputs that must be known when compiling, such as trip counts, as numbers with commas
	// between (--value n=3). They are constants of the program, not its inputs.
	Values map[string]string `json:",omitempty"`
	// Batch, when positive, is the number of samples of every input that has them along an open dimension, the leading one or that of
	// BatchDims (--batch 32).
	Batch int
	// BatchDims are the dimensions along which inputs have their samples (--batch-dim x=1), counted from the end where negative.
	BatchDims map[string]int `json:",omitempty"`
	// Train, Freeze and Untie are globs over initializer names, Tie holds "copy=original" pairs of globs
	// or names; they override the roles and ties that were found (--train, --freeze, --tie, --untie).
	Train, Freeze, Tie, Untie []string
	// Roles are applied after Train and Freeze in their order: of two that match a parameter the later one holds. They are
	// --train and --freeze in the order of the command line.
	Roles []RoleRule
	// PaddingIdx are rows of embeddings that stay as they are: "GLOB=ROW" or "ROW" for all (--padding-idx).
	PaddingIdx []string
	// LoRA adds low-rank adapters (--lora).
	LoRA LoRA
	// Abstract accepts initializers whose data is not there: they have a type and no contents (--abstract-weights).
	Abstract bool `json:",omitempty"`
	// Name is what errors call the file; its base name when empty.
	Name string
	// Outputs selects graph outputs by name, in that order; all of them when empty.
	Outputs []string
	// Fixed gives inputs that are known when compiling: they are constants of the program, not its inputs.
	Fixed map[string]*ir.Tensor
	// Contents gives what inputs of a sequence or optional type hold. A program takes tensors only, so their number and
	// types are fixed when compiling.
	Contents map[string]*Contents
}

// RoleRule says that the parameters that match a glob are trained, or that they are not.
type RoleRule struct {
	Train bool
	Glob  string
}

// Model is a loaded and checked ONNX file. Tensor data stays in the file (memory-mapped) until it is read.
type Model struct {
	// Name is the file's base name, for messages.
	Name string
	// Dir is the folder that external data must lie in; empty means the model may have none.
	Dir string
	// Proto is the decoded file. Its raw tensor data points into the mapped file: never write to it.
	Proto *onnxpb.ModelProto
	// Warnings collects what the user should know: what was assumed, what was lost in export.
	Warnings []string

	opts      Options
	opset     int64
	nodes     []*node                  // the graph in order, functions inlined
	inputs    []*onnxpb.ValueInfoProto // true inputs: initializers that older files repeat as inputs are left out
	outputs   []string
	inits     map[string]*tensor
	sparse    map[string]bool // initializers that the file stores sparsely
	densified int             // bytes of sparse tensors that are stored densely
	initList  []*tensor       // in file order
	torch     torchInfo
	record    *record // nil unless python/gtc exported the file
	marks     *record // nil unless gtc.record marked it
	external  map[string][]byte
	noise     []string // nodes that draw random numbers
	absent    int      // elements of initializers without contents
	closers   []func() error
	roles     *roles
	imported  *importResult
	adopted   map[*onnxpb.NodeProto]bool // Constant nodes whose tensors are taken for initializers
	inlined   *inliner                   // what inlining came to, of the graph and all subgraphs
	bodies    map[bodyKey]*body
}

// Load reads an ONNX file, checks it and finds its parameters. Errors name the file, and the node or tensor
// where there is one. Call Close when neither the model nor a module imported from it is needed any more.
func Load(path string, opts Options) (*Model, error) {
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
func Parse(data []byte, dir string, opts Options) (*Model, error) {
	m := &Model{Name: opts.Name, Dir: dir, opts: opts, external: map[string][]byte{}}
	if m.Name == "" {
		m.Name = "model"
	}
	if err := m.parse(data); err != nil {
		return nil, m.located(err)
	}
	return m, nil
}

// Again is the same file with other options. It is read no second time, and stays open as long as m. A file that stores tensors sparsely, which
// reading has made dense, is an error.
func (m *Model) Again(opts Options) (*Model, error) {
	if len(m.sparse) > 0 {
		return nil, m.located(errors.New("it stores tensors sparsely, and is read once only"))
	}
	other := &Model{Name: m.Name, Dir: m.Dir, Proto: m.Proto, opts: opts, external: m.external}
	err := other.checkVersions()
	if err == nil {
		err = other.index()
	}
	m.closers = append(m.closers, other.closers...)
	if err != nil {
		return nil, m.located(err)
	}
	return other, nil
}

func (m *Model) parse(data []byte) error {
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

func (m *Model) checkVersions() error {
	v := m.Proto.GetIrVersion()
	if v < minIR || v > maxIR {
		return fmt.Errorf("IR version %d is outside %d to %d; export again or use onnx.version_converter", v,
			minIR, maxIR)
	}
	opset, err := defaultOpset(m.Proto.OpsetImport)
	if err != nil {
		return err
	}
	m.opset = opset
	given := map[string]bool{}
	for _, o := range m.Proto.OpsetImport {
		d := standardDomain(o.GetDomain())
		if given[d] {
			return fmt.Errorf("operator set %q is imported twice (opset_import)", d)
		}
		given[d] = true
	}
	return m.checkFunctions()
}

// checkFunctions refuses functions that are given twice, whose calls could mean either.
func (m *Model) checkFunctions() error {
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
		if v < minOpset || v > maxOpset {
			return 0, fmt.Errorf("opset %d is outside %d to %d; export with opset 17 to 20, or use "+
				"onnx.version_converter", v, minOpset, maxOpset)
		}
		return v, nil
	}
	if len(imports) > 0 {
		return 0, nil
	}
	return 0, errors.New("the file imports no operator set (opset_import is empty)")
}

// Opset is the version of the standard operator set that the model uses; 0 when it uses only other domains.
func (m *Model) Opset() int { return int(m.opset) }

// Close unmaps the file and its external data. The tensors of modules imported from m must not be used after.
func (m *Model) Close() error {
	var errs []error
	for _, c := range m.closers {
		errs = append(errs, c())
	}
	m.closers = nil
	return errors.Join(errs...)
}

// located puts the file's name on an error that has none yet.
func (m *Model) located(err error) error {
	var e *ir.Error
	if errors.As(err, &e) && e == err {
		if e.File == "" {
			e.File = m.Name
		}
		return e
	}
	return fmt.Errorf("%s: %w", m.Name, err)
}

func (m *Model) warn(format string, args ...any) {
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
func (m *Model) mapExternal(name string) ([]byte, error) {
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

// product multiplies dims, refusing negative ones and counts that do not fit.
func product(dims []int) (int, error) {
	n := 1
	if len(dims) > maxRank {
		return 0, fmt.Errorf("%d dimensions are more than %d", len(dims), maxRank)
	}
	for _, d := range dims {
		if d < 0 || d > maxDim {
			return 0, fmt.Errorf("dimension %d is outside 0 to %d", d, maxDim)
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
