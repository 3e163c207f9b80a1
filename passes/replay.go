package passes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// A dump folder holds, beside what people read, all that a pass sees, in a folder replay of it: so each pass can be run again, by
// this gtc or a later one, on just what it was given.

// replayDir is that folder; replayFile in it tells the options and the passes, the folder consts in it has the bytes of
// constants that the text shows by their hash.
const (
	replayDir  = "replay"
	replayFile = "replay.json"
	constsDir  = "consts"
)

// recorded is replayFile.
type recorded struct {
	Options pass.Options
	Passes  []string // in the order in which they ran, those that were left out included
	Ran     int      // of these, up to the last that ended well
	Larger  bool     // other sizes of the batch were to be had
}

// facts is what the text of modules does not have, behind one pass.
type facts struct {
	Context  *pass.Context   // what one pass tells another
	Programs []*pass.Context // the same, of each stage
	Rewrites int             // that were asked for so far
	Modules  []moduleFacts   // of each program
}

type moduleFacts struct {
	Locs  []ir.Loc              // all different ones
	Funcs map[string]*funcFacts // by name
}

type funcFacts struct {
	Locs []int             // of each op, an index
	Why  map[int]string    // of collectives, by the number of the op
	Data []string          // names of values that depend on the data set
	Init map[string]string // of parameters that have one: type, and the contents where they are few
}

// record begins the folder of what is needed to run passes again.
func (d *dumper) record(table []pass.Pass) error {
	c := d.c
	r := &d.begun
	*r = recorded{Options: *c.Opt, Larger: c.Larger != nil}
	r.Options.DumpDir = ""
	for _, p := range table {
		r.Passes = append(r.Passes, p.Name)
	}
	if err := os.MkdirAll(filepath.Join(c.Opt.DumpDir, replayDir, constsDir), 0o755); err != nil {
		return fmt.Errorf("cannot use the folder of --dump: %w", err)
	}
	if err := d.writeJSON(replayFile, r); err != nil {
		return err
	}
	c.Larger, c.Sized = d.kept("larger", c.Larger), d.kept("sized", c.Sized)
	return d.keepFacts("00-input")
}

// kept is make with every function that it gives written down.
func (d *dumper) kept(name string, make func(int) (*ir.Func, error)) func(int) (*ir.Func, error) {
	if make == nil {
		return nil
	}
	return func(n int) (*ir.Func, error) {
		f, err := make(n)
		base := fmt.Sprintf("%s-%d", name, n)
		if err != nil {
			return f, errors.Join(err, d.write(filepath.Join(replayDir, base+".error"), err.Error()))
		}
		c := &pass.Context{Module: &ir.Module{Funcs: []*ir.Func{f}}}
		if err := errors.Join(d.write(filepath.Join(replayDir, base+".ir"), text(c)), d.writeJSON(base+".json", factsOf(c)), d.consts(c)); err != nil {
			return nil, err
		}
		return f, nil
	}
}

func (d *dumper) writeJSON(name string, x any) error {
	text, err := json.MarshalIndent(x, "", " ")
	if err != nil {
		return fmt.Errorf("cannot write %s to the folder of --dump: %w", name, err)
	}
	return d.write(filepath.Join(replayDir, name), string(text)+"\n")
}

// keepFacts writes what the text of the modules does not have, when it is not as it was.
func (d *dumper) keepFacts(base string) error {
	now, err := json.MarshalIndent(factsOf(d.c), "", " ")
	if err != nil {
		return fmt.Errorf("cannot write to the folder of --dump: %w", err)
	}
	if string(now) == d.facts {
		return nil
	}
	d.facts = string(now)
	return errors.Join(d.write(filepath.Join(replayDir, base+".json"), d.facts+"\n"), d.consts(d.c))
}

// consts writes the contents of constants that the text shows by their hash, once each.
func (d *dumper) consts(c *pass.Context) error {
	for _, p := range c.Programs() {
		for _, t := range bigConsts(p.Module) {
			path := filepath.Join(d.c.Opt.DumpDir, replayDir, constsDir, t.Hash())
			if _, err := os.Stat(path); err == nil || t.Absent() {
				continue
			}
			if err := os.WriteFile(path, t.Data, 0o644); err != nil {
				return fmt.Errorf("cannot write to the folder of --dump: %w", err)
			}
		}
	}
	return nil
}

func factsOf(c *pass.Context) *facts {
	f := &facts{Context: c, Programs: c.Stages}
	if c.Asked != nil {
		f.Rewrites = c.Asked.Total
	}
	for _, p := range c.Programs() {
		m := moduleFacts{Funcs: map[string]*funcFacts{}}
		at := map[ir.Loc]int{}
		for _, fn := range p.Module.Funcs {
			m.Funcs[fn.Name] = functionFacts(fn, &m, at)
		}
		f.Modules = append(f.Modules, m)
	}
	return f
}

// functionFacts are those of one function; at numbers the locations of m.
func functionFacts(f *ir.Func, m *moduleFacts, at map[ir.Loc]int) *funcFacts {
	x := &funcFacts{}
	for _, p := range f.Params {
		if p.Data {
			x.Data = append(x.Data, p.Name)
		}
		if t := p.Init; t != nil {
			if x.Init == nil {
				x.Init = map[string]string{}
			}
			x.Init[p.Name] = initText(t)
		}
	}
	for i, op := range f.Ops {
		k, known := at[op.Loc]
		if !known {
			k = len(m.Locs)
			at[op.Loc] = k
			m.Locs = append(m.Locs, op.Loc)
		}
		x.Locs = append(x.Locs, k)
		if op.Why != "" {
			if x.Why == nil {
				x.Why = map[int]string{}
			}
			x.Why[i] = op.Why
		}
		for _, v := range op.Out {
			if v.Data {
				x.Data = append(x.Data, v.Name)
			}
		}
	}
	return x
}

// fewElems is up to how many elements initial contents are kept with their type; of weights passes read no more than that.
const fewElems = 64

func initText(t *ir.Tensor) string {
	if t.Absent() || t.Type.Elems() > fewElems {
		return t.Type.String()
	}
	return fmt.Sprintf("%s %x", t.Type, t.Data)
}

// Replayed is what became of one pass.
type Replayed struct {
	Pass string
	Diff string // of what it makes now to what it made, as in dump folders; "" when it is the same
	Err  error  // it did not run
}

// ReplayDump runs each pass of a dump folder again, on just what it was given when the folder was written, and compares what it
// makes now with what it made then: modules, and facts that it told others. So a difference is told of the pass that makes it, and of no
// later one. The last is the pass with which the compilation ended, where it failed. Passes of the table that the folder does not know
// are left out; one that only the folder knows is an error.
func ReplayDump(dir string, table []pass.Pass) ([]Replayed, error) {
	r := &replayer{dir: dir, table: table}
	if err := r.read(replayFile, &r.recorded); err != nil {
		return nil, fmt.Errorf("%s is not a folder that --dump of this version of gtc wrote: %w", dir, err)
	}
	if _, err := pass.TargetOf(r.recorded.Options.Target); err != nil {
		return nil, fmt.Errorf("replay/%s: %w", replayFile, err)
	}
	before := "00-input"
	c, err := r.load(before, before)
	if err != nil {
		return nil, err
	}
	module, facts := before, before
	var list []Replayed
	have := pass.Typed
	for i, name := range r.recorded.Passes {
		k := slices.IndexFunc(table, func(p pass.Pass) bool { return p.Name == name })
		if k < 0 {
			return list, fmt.Errorf("the folder was written with a pass %q, which this gtc does not have", name)
		}
		if slices.Contains(r.recorded.Options.Disable, name) {
			if name == r.recorded.Options.StopAfter {
				break
			}
			continue
		}
		if i >= r.recorded.Ran {
			return append(list, ended(c, table[k], have)), nil
		}
		base := fmt.Sprintf("%02d-%s", i+1, name)
		if _, err := os.Stat(filepath.Join(dir, base+".ir")); err == nil {
			module = base
		}
		if _, err := os.Stat(filepath.Join(dir, replayDir, base+".json")); err == nil {
			facts = base
		}
		want, err := r.load(module, facts)
		if err != nil {
			return list, err
		}
		list = append(list, r.run(c, table[k], want))
		c, have = want, have&^table[k].Clears|table[k].Makes
		if name == r.recorded.Options.StopAfter {
			break
		}
	}
	return list, nil
}

// replayer reads a dump folder.
type replayer struct {
	dir      string
	table    []pass.Pass
	recorded recorded
}

// ended runs the pass with which the compilation ended, or before which it was ended: what it made then is not known.
func ended(c *pass.Context, p pass.Pass, have pass.Prop) Replayed {
	out := Replayed{Pass: p.Name, Diff: "it runs; when the folder was written, the compilation ended here\n"}
	if missing := p.Needs &^ have; missing != 0 {
		out.Err = fmt.Errorf("it needs %s, which only a disabled pass makes", missing)
	}
	for _, program := range c.Programs() {
		if out.Err == nil {
			out.Err = runRow(program, p)
		}
	}
	return out
}

// run runs p on c and compares it with want.
func (r *replayer) run(c *pass.Context, p pass.Pass, want *pass.Context) Replayed {
	out := Replayed{Pass: p.Name}
	for _, program := range c.Programs() {
		if out.Err = runRow(program, p); out.Err != nil {
			return out
		}
	}
	out.Diff = lineDiff(text(want), text(c))
	now, err := json.MarshalIndent(factsOf(c), "", " ")
	was, err2 := json.MarshalIndent(factsOf(want), "", " ")
	if out.Err = errors.Join(err, err2); out.Err == nil {
		out.Diff += lineDiff(string(was), string(now))
	}
	return out
}

func (r *replayer) read(name string, to any) error {
	text, err := os.ReadFile(filepath.Join(r.dir, replayDir, name))
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(replayDir, name), err)
	}
	return nil
}

// load is the context as it was behind a pass: its modules are those of one file, its facts those of another.
func (r *replayer) load(module, more string) (*pass.Context, error) {
	modules, err := os.ReadFile(filepath.Join(r.dir, module+".ir"))
	if err != nil {
		return nil, err
	}
	f := &facts{Context: &pass.Context{}}
	if err := r.read(more+".json", f); err != nil {
		return nil, err
	}
	parts := stages(string(modules))
	switch n := len(parts); {
	case f.Context == nil || slices.Contains(f.Programs, nil):
		return nil, fmt.Errorf("replay/%s.json lacks the facts of a program", more)
	case n != len(f.Modules) || n != max(1, len(f.Programs)):
		return nil, fmt.Errorf("%s.ir has %s, but replay/%s.json has modules for %d and facts for %d", module, printable.Count(n, "program"), more, len(f.Modules), max(1, len(f.Programs)))
	}
	c, options := f.Context, r.recorded.Options
	c.Opt, c.Stages, c.Asked = &options, f.Programs, &pass.Asked{Total: f.Rewrites}
	if r.recorded.Larger {
		c.Larger, c.Sized = r.other("larger"), r.other("sized")
	}
	for i, part := range parts {
		m, err := r.parse(part, &f.Modules[i])
		if err != nil {
			return nil, fmt.Errorf("%s.ir: %w", module, err)
		}
		program := c.Programs()[i]
		program.Module, program.Opt, program.Asked = m, c.Opt, c.Asked
	}
	if c.Module == nil {
		c.Module = &ir.Module{Mesh: c.Stages[0].Module.Mesh}
	}
	return c, nil
}

// stages splits the text of several programs.
func stages(text string) []string {
	var parts []string
	for i := 0; strings.HasPrefix(text, stageLine(i)); i++ {
		text = strings.TrimPrefix(text, stageLine(i))
		part, _, more := strings.Cut(text, "\n"+stageLine(i+1))
		parts = append(parts, part+"\n")
		if more {
			text = text[len(part)+1:]
		}
	}
	if parts == nil {
		return []string{text}
	}
	return parts
}

// parse reads a module with all that its text does not have.
func (r *replayer) parse(text string, more *moduleFacts) (*ir.Module, error) {
	m, err := ir.Parse(text)
	if err != nil {
		return nil, err
	}
	for _, t := range bigConsts(m) {
		data, err := os.ReadFile(filepath.Join(r.dir, replayDir, constsDir, t.Hash()))
		if err == nil && len(data) != t.Type.Bytes() {
			return nil, fmt.Errorf("constant %s has %d bytes, but its type %s takes %d", t.Hash(), len(data), t.Type, t.Type.Bytes())
		}
		if err == nil {
			t.Data = data
		}
	}
	for _, f := range m.Funcs {
		x := more.Funcs[f.Name]
		if x == nil || len(x.Locs) != len(f.Ops) {
			return nil, fmt.Errorf("the facts about @%s do not fit this module", f.Name)
		}
		if err := x.restore(f, more.Locs); err != nil {
			return nil, fmt.Errorf("@%s: %w", f.Name, err)
		}
	}
	return m, nil
}

// restore gives f what its text does not have.
func (x *funcFacts) restore(f *ir.Func, locs []ir.Loc) error {
	data := map[string]bool{}
	for _, name := range x.Data {
		data[name] = true
	}
	for _, p := range f.Params {
		p.Data = data[p.Name]
		if text, ok := x.Init[p.Name]; ok {
			t, err := parseInit(text, p.Type)
			if err != nil {
				return err
			}
			p.Init = t
		}
	}
	for i, op := range f.Ops {
		if x.Locs[i] < 0 || x.Locs[i] >= len(locs) {
			return fmt.Errorf("op %d has location %d, but there are %d", i, x.Locs[i], len(locs))
		}
		op.Loc, op.Why = locs[x.Locs[i]], x.Why[i]
		for _, v := range op.Out {
			v.Data = data[v.Name]
		}
	}
	return nil
}

// parseInit reads initText; contents that it leaves out stay absent.
func parseInit(text string, of ir.Type) (*ir.Tensor, error) {
	name, hex, _ := strings.Cut(text, " ")
	t := &ir.Tensor{Type: of}
	if name != of.String() { // a part of a rank begins as the whole
		m, err := ir.Parse("func @f(%x: " + name + ") {\n  return\n}\n")
		if err != nil {
			return nil, fmt.Errorf("initial contents of type %q: %w", name, err)
		}
		t.Type = m.Funcs[0].Params[0].Type
	}
	if hex != "" {
		if _, err := fmt.Sscanf(hex, "%x", &t.Data); err != nil || len(t.Data) != t.Type.Bytes() {
			return nil, fmt.Errorf("initial contents %q: not %d bytes", text, t.Type.Bytes())
		}
	}
	return t, nil
}

// other gives functions for other sizes of the batch as they were when the folder was written.
func (r *replayer) other(name string) func(int) (*ir.Func, error) {
	return func(n int) (*ir.Func, error) {
		base := fmt.Sprintf("%s-%d", name, n)
		if told, err := os.ReadFile(filepath.Join(r.dir, replayDir, base+".error")); err == nil {
			return nil, errors.New(string(told))
		}
		text, err := os.ReadFile(filepath.Join(r.dir, replayDir, base+".ir"))
		if err != nil {
			return nil, fmt.Errorf("the compilation that wrote the folder did not ask for this size of the batch: %w", err)
		}
		f := &facts{Context: &pass.Context{}}
		if err := r.read(base+".json", f); err != nil {
			return nil, err
		}
		if len(f.Modules) != 1 {
			return nil, fmt.Errorf("replay/%s.json has %d modules, not one", base, len(f.Modules))
		}
		m, err := r.parse(string(text), &f.Modules[0])
		if err != nil {
			return nil, fmt.Errorf("replay/%s.ir: %w", base, err)
		}
		if len(m.Funcs) != 1 {
			return nil, fmt.Errorf("replay/%s.ir has %d functions, not one", base, len(m.Funcs))
		}
		return m.Funcs[0], nil
	}
}
