package loop

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
	"github.com/gtc-compiler/gtc/runtime/train/internal/report"
)

// dumpForward is the mode of --dump-forward: @forward on the samples of --inputs, however many there are, and all outputs of the
// model, under their names in the ONNX file, to a file.
func (s *session) dumpForward() error {
	f := s.m.Funcs[abi.FuncForward]
	if f == nil {
		return ranks.Usagef("this program was compiled without @forward (gtc compile --forward)")
	}
	feed, err := s.m.NewFeeder(f)
	if err != nil {
		return err
	}
	batch, err := readBatch(s.cfg.inputs, feed, &s.cfg.opt)
	if err != nil {
		return ranks.Usagef("--inputs: %w", err)
	}
	p := &forward{s: s, f: f, feed: feed, batch: batch, size: feed.Rows * feed.Calls * s.Plan.Train.DP}
	if err := p.count(); err != nil {
		return ranks.Usagef("--inputs %s: %w", s.cfg.inputs, err)
	}
	if err := s.resume(nil); err != nil {
		return err
	}
	s.untrained()
	arrays, err := p.run()
	if err != nil {
		return err
	}
	if nodes := s.Plan.Train.Noise[abi.FuncForward]; nodes != "" {
		s.rep.Note("%s", report.Random("outputs are", nodes))
	}
	return s.writeResults(s.cfg.dumpForward, s.Plan.Named(s.Plan.AsModel(arrays)))
}

// untrained says that outputs are those of the initial weights where there are trained ones.
func (s *session) untrained() {
	dir := s.checkpointDir()
	if s.cfg.resume != "" || s.cfg.initFrom != "" || dir == "" {
		return
	}
	c, err := ckpt.Open(dir)
	if err != nil { // none, or none that counts: nobody asked for it
		return
	}
	defer c.Close()
	s.rep.Note("outputs are those of the initial weights: --resume takes the checkpoint of step %d in %s", c.Index().Step, dir)
}

// forward runs a model over samples, as many at a time as it was compiled for.
type forward struct {
	s       *session
	f       *machine.Function // @forward
	feed    *machine.Feeder
	batch   []npz.Array // all samples of each of the feeder's inputs
	rows    []int       // leading rows of each input that one sample has
	size    int         // samples of one run, on all ranks
	samples int         // all there are
}

// count finds how many samples there are. An input whose leading dim does not say is of one run.
func (p *forward) count() error {
	p.rows, p.samples = make([]int, len(p.batch)), -1
	first := ""
	for i, t := range p.feed.Inputs {
		a := &p.batch[i]
		if len(t.Dims) == 0 || t.Dims[0] == 0 || t.Dims[0]%p.feed.Rows != 0 || len(a.Shape) != len(t.Dims) {
			continue
		}
		each := t.Dims[0] / p.feed.Rows
		if a.Shape[0]%each != 0 {
			return fmt.Errorf("array %q has shape %v, which is not a whole number of samples of %d rows", a.Name, a.Shape, each)
		}
		p.rows[i] = each
		switch n := a.Shape[0] / each; {
		case p.samples < 0:
			p.samples, first = n, a.Name
		case p.samples != n:
			return fmt.Errorf("array %q has %s, but %q has %d", first, printable.Count(p.samples, "sample"), a.Name, n)
		}
	}
	switch {
	case p.samples == 0:
		return errors.New("there are no samples")
	case p.samples < 0:
		p.samples = p.size
	}
	if why := p.s.Plan.Meets(abi.FuncForward); why != "" && p.samples%p.size != 0 {
		full := p.samples / p.size * p.size
		give := fmt.Sprintf("give %d of them, or %d", full, full+p.size)
		if full == 0 {
			give = fmt.Sprintf("give %d", p.size)
		}
		return fmt.Errorf("it has %s, but the program takes %d at a time, and samples that fill up the last of these would count: %s; %s",
			printable.Count(p.samples, "sample"), p.size, why, give)
	}
	if i := slices.Index(p.rows, 0); i >= 0 && p.samples != p.size {
		return fmt.Errorf("it has %s, but the program takes %d at a time, and input %q cannot be cut into those: give %s",
			printable.Count(p.samples, "sample"), p.size, p.feed.Inputs[i].Name, printable.Count(p.size, "sample"))
	}
	return nil
}

// run gives the outputs of all samples, on rank 0.
func (p *forward) run() ([]npz.Array, error) {
	var all []npz.Array
	for from := 0; from < p.samples; from += p.size {
		arrays, err := p.once(from)
		if err != nil {
			return nil, err
		}
		if p.samples == p.size {
			return arrays, nil
		}
		if from == 0 {
			if err := p.s.AllOK("telling outputs of samples apart", p.apart(arrays)); err != nil {
				return nil, err
			}
			all = slices.Clone(arrays)
			for i := range all {
				all[i].Shape, all[i].Data = slices.Clone(all[i].Shape), nil
				all[i].Shape[0] = all[i].Shape[0] / p.size * p.samples
			}
		}
		count := min(p.size, p.samples-from)
		for i := range all {
			all[i].Data = append(all[i].Data, arrays[i].Data[:len(arrays[i].Data)/p.size*count]...)
		}
	}
	return all, nil
}

// once runs the samples from one on, filled up with the last one to as many as a run takes.
func (p *forward) once(from int) ([]npz.Array, error) {
	batch := slices.Clone(p.batch)
	for i := range batch {
		if p.samples != p.size {
			batch[i] = stretch(&batch[i], from*p.rows[i], p.size*p.rows[i], p.rows[i])
		}
	}
	p.feed.Fresh()
	c := &collector{s: p.s}
	for micro := range p.feed.Calls {
		if err := p.feed.Fixed(batch, p.f, micro); err != nil {
			return nil, inFile("--inputs "+p.s.cfg.inputs, err)
		}
		if err := p.s.m.Run(p.f, micro); err != nil {
			return nil, err
		}
		if err := c.take(p.f, micro); err != nil {
			return nil, err
		}
	}
	return c.join()
}

// stretch is n rows of a from one on; when there are fewer, the last sample, of each rows, fills the rest.
func stretch(a *npz.Array, from, n, each int) npz.Array {
	out := npz.Array{Name: a.Name, DType: a.DType, Shape: slices.Clone(a.Shape)}
	out.Shape[0] = n
	row := len(a.Data) / a.Shape[0]
	to := min(from+n, a.Shape[0])
	out.Data = append(make([]byte, 0, n*row), a.Data[from*row:to*row]...)
	for len(out.Data) < n*row {
		out.Data = append(out.Data, a.Data[(a.Shape[0]-each)*row:]...)
	}
	return out
}

// apart refuses an output that has no rows for each sample: of several runs, or of one that is not full, it cannot be told.
func (p *forward) apart(arrays []npz.Array) error {
	for i := range arrays {
		a := &arrays[i]
		if len(a.Shape) == 0 || a.Shape[0] == 0 || a.Shape[0]%p.size != 0 {
			return ranks.Usagef("output %q is %s%v, one for all samples of a run: it cannot be told for %s in runs of %d; give %s, or compile with --batch %d",
				p.s.Plan.OutputName(a.Name), a.DType, a.Shape, printable.Count(p.samples, "sample"), p.size, printable.Count(p.size, "sample"), p.samples)
		}
	}
	return nil
}
