package passes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// dumper writes what each pass changed, when a folder was asked for.
type dumper struct {
	c       *pass.Context
	begun   recorded
	last    string // text after the pass before
	facts   string // and the rest of what passes see
	summary strings.Builder
}

func newDumper(c *pass.Context, table []pass.Pass) (*dumper, error) {
	d := &dumper{c: c}
	if c.Opt.DumpDir == "" {
		return d, nil
	}
	if err := os.MkdirAll(c.Opt.DumpDir, 0o755); err != nil {
		return nil, fmt.Errorf("cannot use the folder of --dump: %w", err)
	}
	if err := clearDump(c.Opt.DumpDir); err != nil {
		return nil, fmt.Errorf("cannot use the folder of --dump: %w", err)
	}
	d.last = text(d.c)
	if err := d.record(table); err != nil {
		return nil, err
	}
	return d, d.write("00-input.ir", d.last)
}

// dumped matches what a dump folder holds.
var dumped = regexp.MustCompile(`^(\d\d-[a-z]+\.(ir|diff)|summary\.txt|replay)$`)

// clearDump removes what another compilation dumped into dir, which would be taken for what this one did not change; of other
// folders nothing.
func clearDump(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "00-input.ir")); err != nil {
		return nil
	}
	entries, err := os.ReadDir(dir)
	for _, e := range entries {
		if dumped.MatchString(e.Name()) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// text is the module, or those of the pipeline's stages.
func text(c *pass.Context) string {
	var b strings.Builder
	for i, program := range c.Programs() {
		if len(c.Stages) > 0 {
			b.WriteString(stageLine(i))
		}
		b.WriteString(program.Module.Print(ir.PrintOptions{Loc: true}))
	}
	return b.String()
}

// stageLine begins the module of a stage.
func stageLine(i int) string { return fmt.Sprintf("# stage %d\n", i) }

// after writes NN-name.ir and NN-name.diff when the text changed, and a line of the summary always.
func (d *dumper) after(n int, name string, took time.Duration, remarks []pass.Remark) error {
	if d.c.Opt.DumpDir == "" {
		return nil
	}
	base := fmt.Sprintf("%02d-%s", n, name)
	if err := d.keepFacts(base); err != nil {
		return err
	}
	text := text(d.c)
	state := "unchanged"
	if text != d.last {
		edits := lineDiff(d.last, text)
		state = fmt.Sprintf("+%d -%d lines", strings.Count(edits, "\n+"), strings.Count(edits, "\n-"))
		if err := errors.Join(d.write(base+".ir", text), d.write(base+".diff", edits)); err != nil {
			return err
		}
		d.last = text
	}
	d.begun.Ran = n
	if err := d.writeJSON(replayFile, &d.begun); err != nil {
		return err
	}
	fmt.Fprintf(&d.summary, "%02d %-12s %10s  %s\n", n, name, took.Round(10*time.Microsecond), state)
	for _, r := range remarks {
		fmt.Fprintf(&d.summary, "    %s\n", r)
	}
	return nil
}

func (d *dumper) close() error {
	if d.c.Opt.DumpDir == "" {
		return nil
	}
	return d.write("summary.txt", d.summary.String())
}

func (d *dumper) write(name, text string) error {
	if err := os.WriteFile(filepath.Join(d.c.Opt.DumpDir, name), []byte(text), 0o644); err != nil {
		return fmt.Errorf("cannot write to the folder of --dump: %w", err)
	}
	return nil
}
