package passes

import (
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Run takes c.Module through the passes of table in order. It verifies the module after each pass, checks
// that the facts a pass needs were made and that it leaves the options as they are, records times and remarks in c, writes what changed under
// c.Opt.DumpDir, honours Disable and StopAfter, and turns a panic of a pass into an error that names a
// replayable crash file. An error of a pass comes back unchanged when it is an *ir.Error, wrapped with the
// pass's name otherwise.
func Run(c *pass.Context, table []pass.Pass) error {
	if c.Opt == nil {
		c.Opt = &pass.Options{}
	}
	if err := checkNames(c.Opt, table); err != nil {
		return err
	}
	if err := c.Module.Verify(); err != nil {
		return fmt.Errorf("BUG: the module given to the pipeline is not valid: %w", err)
	}
	d, err := newDumper(c, table)
	if err != nil {
		return err
	}
	have := pass.Typed
	if c.Asked == nil {
		c.Asked = &pass.Asked{}
	}
	for i, p := range table {
		last := p.Name == c.Opt.StopAfter && !containsName(table[i+1:], p.Name)
		if slices.Contains(c.Opt.Disable, p.Name) {
			c.Times = append(c.Times, pass.Time{Pass: p.Name, Skipped: true})
			if last {
				break
			}
			continue
		}
		if missing := p.Needs &^ have; missing != 0 {
			return fmt.Errorf("pass %s needs %s, which only a disabled pass makes", p.Name, missing)
		}
		remarks, start := len(c.Remarks), time.Now()
		for _, program := range c.Programs() {
			program.Asked = c.Asked
			if err := runRow(program, p); err != nil {
				return err
			}
			if program != c {
				c.Remarks = append(c.Remarks, program.Remarks...)
				program.Remarks = nil
			}
		}
		took := time.Since(start)
		have = have&^p.Clears | p.Makes
		c.Times = append(c.Times, pass.Time{Pass: p.Name, Took: took})
		if err := d.after(i+1, p.Name, took, c.Remarks[remarks:]); err != nil {
			return err
		}
		if c.Watch != nil {
			if err := c.Watch(p); err != nil {
				return err
			}
		}
		if last {
			break
		}
	}
	c.Pass = ""
	return d.close()
}

// Check reports the first pass of table that cannot stand where it stands, given the facts that hold at the start: one whose
// needs are not made by those before it, or were cleared since, or which must be on the other side of another. Facts of want
// must hold in the end.
func Check(table []pass.Pass, have, want pass.Prop) error {
	at, made := map[string]int{}, have
	for i, p := range table {
		at[p.Name] = i
	}
	for i, p := range table {
		if missing := p.Needs &^ have; missing&^made != 0 {
			return fmt.Errorf("pass %s needs %s, which no earlier pass makes", p.Name, missing&^made)
		} else if missing != 0 {
			return fmt.Errorf("pass %s needs %s, which %s cleared", p.Name, missing, clearedBy(table[:i], missing))
		}
		for _, name := range slices.Concat(p.After, p.Before) {
			if _, known := at[name]; !known {
				return fmt.Errorf("pass %s is to run before or after %q, which is not a pass", p.Name, name)
			}
		}
		for _, name := range p.After {
			if at[name] > i {
				return fmt.Errorf("pass %s runs before %s, but must run after it", p.Name, name)
			}
		}
		for _, name := range p.Before {
			if at[name] < i {
				return fmt.Errorf("pass %s runs after %s, but must run before it", p.Name, name)
			}
		}
		have, made = have&^p.Clears|p.Makes, made|p.Makes
	}
	if missing := want &^ have; missing != 0 {
		return fmt.Errorf("after the last pass %s does not hold: no pass makes it, or a later one clears it", missing)
	}
	return nil
}

// clearedBy names the last pass that clears one of the facts.
func clearedBy(table []pass.Pass, facts pass.Prop) string {
	for _, p := range slices.Backward(table) {
		if p.Clears&facts != 0 {
			return p.Name
		}
	}
	return ""
}

// runRow runs p on one program and verifies what it left.
func runRow(c *pass.Context, p pass.Pass) error {
	before, options := snapshot(c.Module), fmt.Sprintf("%+v", *c.Opt)
	c.Pass = p.Name
	if p.Clears&pass.Scheduled != 0 {
		for _, f := range c.Module.Funcs {
			f.Unschedule()
		}
	}
	if err := runOne(c, p, before); err != nil {
		return err
	}
	if now := fmt.Sprintf("%+v", *c.Opt); now != options {
		return fmt.Errorf("BUG: pass %s wrote to the options, which are the user's: %s, they were %s", p.Name, now, options)
	}
	for _, program := range c.Programs() {
		if err := program.Module.Verify(); err != nil {
			err = fmt.Errorf("BUG: pass %s left a module that is not valid: %w", p.Name, err)
			return errors.Join(err, saveCrash(c, p.Name, before, err.Error()))
		}
	}
	return nil
}

// runOne runs p; before is the module as it was, for the crash file.
func runOne(c *pass.Context, p pass.Pass, before *ir.Module) (err error) {
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		if e, ok := r.(*ir.Error); ok { // a constructor refused operands: tell it as a fault of the pass
			r = e.Error()
		}
		what := fmt.Sprintf("pass %s panicked: %v", p.Name, r)
		err = errors.Join(errors.New("BUG: "+what), saveCrash(c, p.Name, before, what+"\n\n"+string(debug.Stack())))
	}()
	if err := p.Run(c); err != nil {
		var told *ir.Error
		if errors.As(err, &told) {
			return err
		}
		return fmt.Errorf("pass %s: %w", p.Name, err)
	}
	return nil
}

// snapshot copies the module so that a crash or a dump can show it as it was. It costs one walk over the
// values, no printing.
func snapshot(m *ir.Module) *ir.Module {
	s := &ir.Module{Mesh: m.Mesh}
	for _, f := range m.Funcs {
		g, _ := f.Clone()
		s.Funcs = append(s.Funcs, g)
	}
	return s
}

// checkNames refuses options that name passes the table does not have, and those that leave out what other options ask
// for: no later pass would miss it.
func checkNames(o *pass.Options, table []pass.Pass) error {
	if _, err := pass.TargetOf(o.Target); err != nil {
		return err
	}
	names := slices.Clone(o.Disable)
	if o.StopAfter != "" {
		names = append(names, o.StopAfter)
	}
	for _, n := range names {
		if !containsName(table, n) {
			return fmt.Errorf("no pass is called %q; the passes are %s", n, strings.Join(tableNames(table), ", "))
		}
	}
	g := &o.GradComm
	for _, w := range []struct {
		pass, flag string
		asked      bool
	}{
		{"lora", "--lora", o.LoRA.Rank > 0}, {"precision", "--precision " + o.Precision, o.Precision != "" && o.Precision != "fp32"},
		{"microbatch", "--microbatches", o.Microbatches > 1}, {"stage", "--pp", o.PP > 1}, {"tree", "--reproducible", o.Reproducible},
		{"compress", "--grad-dtype, --grad-compress and --local-sgd", g.Compress != "" || g.Period > 0 || g.DType != "" && g.DType != "f32"},
	} {
		if w.asked && slices.Contains(o.Disable, w.pass) {
			return fmt.Errorf("--disable %s is not possible: that pass does what %s asks for", w.pass, w.flag)
		}
	}
	return nil
}

func containsName(table []pass.Pass, name string) bool {
	return slices.ContainsFunc(table, func(p pass.Pass) bool { return p.Name == name })
}

// tableNames lists the distinct names in table order.
func tableNames(table []pass.Pass) []string {
	var names []string
	for _, p := range table {
		if !slices.Contains(names, p.Name) {
			names = append(names, p.Name)
		}
	}
	return names
}
