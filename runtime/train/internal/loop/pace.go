package loop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// pacer queues training steps on a device without waiting for each. The batch of the next step is on its way to the device
// while the present one runs; the results of a step come back later and are looked at in the order of the steps, so that a run
// ends at the same step as if each had been waited for. A step that ran once as it is runs as one graph from then on.
type pacer struct {
	t            *trainer
	copies       device.Stream // of batches to the inbox
	uploaded     device.Event  // the next batch is in the inbox
	consumed     device.Event  // the present batch has been taken out of the inbox
	ahead        *data.Batch   // in the inbox, or on its way there
	ring         [pace]past
	issued, seen int                              // steps that were queued, and whose results were looked at
	recordings   map[*machine.Function]*recording // steps by the function that ends them
	filled       bool                             // the inbox has the batch of --fixed-batch
	words        []int                            // number of the first status word that each action's are copied to; -1 for none
	inputs       []machine.Read                   // of all actions
}

// pace is how many steps may be queued before the oldest is waited for.
const pace = 8

// past is a step whose results are on their way.
type past struct {
	step  int64
	block []byte       // its status words and results
	over  device.Event // block is filled
}

// recording is a step as a graph, by its last function.
type recording struct {
	graph   device.Graph // 0 while there is none
	refused bool         // the step cannot be a graph
}

// slots is how many batches the loader reads ahead of a device: one is being copied meanwhile.
const slots = 3

// newPacer prepares the queue of t's steps; nil where every call is looked at, or on a device that does its work at once.
func (t *trainer) newPacer() (*pacer, error) {
	m := t.m
	if m.Local != nil || t.watch.Calls() {
		return nil, nil
	}
	p := &pacer{t: t, recordings: map[*machine.Function]*recording{}}
	t.Rate = math.NaN() // until it is read
	var errs [4]error
	p.copies, errs[0] = m.Dev.NewStream(false)
	p.uploaded, errs[1] = m.Dev.NewEvent()
	p.consumed, errs[2] = m.Dev.NewEvent()
	for i := range p.ring {
		e := &p.ring[i]
		var err error
		if e.block, err = m.Dev.Pinned(8 * (m.RuntimeArea.Limit + machine.InBlock)); err == nil {
			e.over, err = m.Dev.NewEvent()
		}
		errs[3] = errors.Join(errs[3], err)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for i := range t.actions {
		f := t.actions[i].f
		for _, r := range f.Reads {
			if !slices.ContainsFunc(p.inputs, func(q machine.Read) bool { return q.Tensor == r.Tensor }) {
				p.inputs = append(p.inputs, r)
			}
		}
	}
	return p, p.giveWords()
}

// giveWords gives each action of a step of several a copy of the status words of its function.
func (p *pacer) giveWords() error {
	m := p.t.m
	p.words = slices.Repeat([]int{-1}, len(p.t.actions))
	if len(p.t.actions) == 1 {
		return nil
	}
	for i := range p.t.actions {
		n := len(p.t.actions[i].f.Status)
		if l := p.t.apart.local; l != nil && i == len(p.t.actions)-1 {
			n = max(n, len(l.Status))
		}
		if n == 0 {
			continue
		}
		var err error
		if p.words[i], err = m.GiveWords(n); err != nil {
			return err
		}
	}
	return nil
}

// step queues one step.
func (p *pacer) step() error {
	t, m := p.t, p.t.m
	if p.issued-p.seen == pace {
		if err := p.look(); err != nil {
			return err
		}
	}
	begin := time.Now()
	if p.ahead == nil {
		if err := p.fetch(); err != nil {
			return err
		}
	}
	t.watch.Data += time.Since(begin)
	if p.ahead.Step != t.step-t.origin {
		return fmt.Errorf("BUG: step %d got the data of step %d", t.step, p.ahead.Step+t.origin)
	}
	if t.changes() { // what a past step refused is told in the words of its own functions
		if err := p.catch(true); err != nil {
			return err
		}
	}
	if err := t.choose(); err != nil {
		return err
	}
	err := m.Main.Wait(p.uploaded)
	if err == nil {
		err = p.run()
	}
	past := &p.ring[p.issued%pace]
	past.step = t.step + 1
	if err == nil {
		err = m.Main.Download(past.block, m.RuntimeArea.Words)
	}
	if err == nil {
		err = m.Main.Record(past.over)
	}
	if err != nil {
		return t.failed(err)
	}
	p.issued++
	t.step++
	if t.step < t.total {
		if err := p.fetch(); err != nil {
			return err
		}
	}
	t.watch.Steps++
	t.watch.Time += time.Since(begin)
	if err := p.catch(p.due()); err != nil {
		return err
	}
	return t.stepped()
}

// due reports whether the results of the step are wanted now. Every rank gives the same answer, so that all end alike.
func (p *pacer) due() bool {
	t, c := p.t, p.t.cfg
	every := func(n int64) bool { return n > 0 && t.step%n == 0 }
	return p.issued == 1 || t.step == t.total || c.bench || t.watch.Hash > 0 || every(c.logEvery) || every(c.saveEvery) || t.eval != nil && every(c.evalEvery)
}

// catch looks at the results of steps: all of them, or those that are there.
func (p *pacer) catch(all bool) error {
	if all && p.t.lr != nil { // of the last step, before anything else is where it lies
		rate, err := p.t.m.Scalar(p.t.lr)
		if err != nil {
			return p.t.failed(err)
		}
		p.t.Rate = rate
	}
	for p.seen < p.issued {
		if !all {
			if p.t.World != nil {
				return nil // the ranks must find the same
			}
			over, err := p.t.m.Dev.Done(p.ring[p.seen%pace].over)
			if err != nil {
				return p.t.failed(err)
			}
			if !over {
				return nil
			}
		}
		if err := p.look(); err != nil {
			return err
		}
	}
	return nil
}

// look waits for the oldest step that was not looked at, and looks at it.
func (p *pacer) look() error {
	t, m := p.t, p.t.m
	past := &p.ring[p.seen%pace]
	if err := m.Until(func() (bool, error) { return m.Dev.Done(past.over) }); err != nil {
		return t.failed(err)
	}
	p.seen++
	for i := range t.actions {
		a := &t.actions[i]
		for k, s := range a.f.Status {
			word := s.Word
			if p.words[i] >= 0 {
				word = p.words[i] + k
			}
			if row := int64(binary.NativeEndian.Uint64(past.block[8*word:])); row != machine.NoRow {
				return p.refused(a, s.Call, row, past.step)
			}
		}
	}
	v := [machine.NumResults]float64{}
	for i := range machine.InBlock {
		v[i] = math.NaN()
	}
	v[machine.InBlock] = t.Rate
	results := t.resultTensors()
	for i, r := range results[:machine.InBlock] {
		if r != nil {
			v[i] = program.FirstValue(past.block[8*(m.RuntimeArea.Limit+i):], r.DType)
		}
	}
	if err := t.keep(past.step, v); err != nil {
		return err
	}
	return t.divergedAt(past.step)
}

// refused is the error of a call that refused an index in a step. The batch of that step is read once more to see it.
func (p *pacer) refused(a *action, c *program.Call, row, step int64) error {
	t := p.t
	t.step = step - 1
	cfg := t.reading
	cfg.Start, cfg.Stop, cfg.Slots, cfg.Alloc = t.step-t.origin, step-t.origin, 1, nil
	look := func(*abi.Tensor, int64) (int64, bool) { return 0, false }
	if l, err := t.set.Loader(cfg); err == nil {
		defer l.Close()
		if b, err := l.Next(context.Background()); err == nil {
			look = func(x *abi.Tensor, i int64) (int64, bool) {
				r := slices.IndexFunc(a.f.Reads, func(r machine.Read) bool { return r.Tensor == x })
				if r < 0 {
					return 0, false
				}
				return program.FirstIndex(a.f.Reads[r].Rows(b, a.data)[int(i)*program.ElemSize(x.DType):], x.DType)
			}
		}
	}
	return t.failed(t.m.Refused(a.f, c, row, a.micro, look))
}

// fetch has the next batch copied to the inbox, once the present one is out of it.
func (p *pacer) fetch() error {
	t, m := p.t, p.t.m
	if p.ahead != nil { // its copy is over before the next one's begins
		if err := m.Until(func() (bool, error) { return m.Dev.Done(p.uploaded) }); err != nil {
			return t.failed(err)
		}
		p.ahead.Release()
		p.ahead = nil
	}
	b, err := t.loader.Next(context.Background())
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("BUG: the data ended before step %d", t.step)
	}
	if err != nil {
		return ranks.Usage(err)
	}
	p.ahead = b
	err = p.copies.Wait(p.consumed)
	for i := range p.inputs {
		r := &p.inputs[i]
		rows, parts := r.All(b), program.PartOf(r.Tensor, t.feed.Calls-1)+1
		if len(rows) != parts*r.Tensor.Bytes {
			return fmt.Errorf("BUG: a batch has %d bytes of %q, but the program reads %d times %d", len(rows), r.Tensor.Name, parts, r.Tensor.Bytes)
		}
		if err == nil {
			err = p.copies.Upload(m.RuntimeArea.Inbox[r.Tensor], rows)
		}
	}
	if err == nil {
		err = p.copies.Record(p.uploaded)
	}
	if err != nil {
		return t.failed(err)
	}
	return nil
}

// fixed does one step on a batch that stays, and waits for it. The first one is that of runs without a pacer, which has put the
// batch where functions read it, part by part.
func (p *pacer) fixed(batch []npz.Array) error {
	t, m := p.t, p.t.m
	if !p.filled {
		t.feed.Fresh()
		for i := range t.actions {
			a := &t.actions[i]
			if err := t.feed.Fixed(batch, a.f, a.data); err != nil {
				return inFile("--fixed-batch "+t.cfg.fixedBatch, err)
			}
			for _, r := range a.f.Reads {
				if err := m.Main.Copy(m.RuntimeArea.Inbox[r.Tensor]+program.PartOf(r.Tensor, a.data)*r.Tensor.Bytes, r.Tensor.Offset, r.Tensor.Bytes); err != nil {
					return m.Broken(a.f, nil, err)
				}
			}
		}
		p.filled = true
	}
	if err := p.run(); err != nil {
		return t.failed(err)
	}
	if err := m.Wait(m.Main); err != nil {
		return t.failed(err)
	}
	for i := range t.actions {
		if err := m.LookAtWords(t.actions[i].f, t.actions[i].micro); err != nil {
			return t.failed(err)
		}
	}
	return nil
}

// run queues the work of a step: as it is the first time, which readies libraries and communicators, then as a graph.
func (p *pacer) run() error {
	t, m := p.t, p.t.m
	r := p.recordings[t.last]
	switch {
	case r == nil:
		p.recordings[t.last] = &recording{refused: t.env.getenv("GTC_GRAPH") == "0" || !m.Recordable()}
		return p.queue()
	case r.refused:
		return p.queue()
	case r.graph != 0:
		return m.Broken(t.last, nil, m.Main.Launch(r.graph))
	}
	if err := m.Main.Capture(); err != nil {
		return m.Broken(t.last, nil, err)
	}
	err := p.queue()
	graph, ended := m.Main.End()
	if err = errors.Join(err, ended); err == nil {
		r.graph = graph
		return m.Broken(t.last, nil, m.Main.Launch(graph))
	}
	m.Dev.Drop(graph)
	var f device.Failure
	if errors.As(err, &f) && f.Lost() {
		return m.Broken(t.last, nil, err)
	}
	r.refused = true
	t.rep.Note("steps run kernel by kernel: they cannot be recorded as a graph: %v", err)
	return p.queue()
}

// queue queues the actions of a step one by one.
func (p *pacer) queue() error {
	t, m := p.t, p.t.m
	main := m.Main
	t.feed.Fresh()
	image := m.RuntimeArea.Image
	for i := range t.actions {
		a := &t.actions[i]
		if len(a.f.Reads) > 0 && image.Bytes > 0 {
			if err := main.Copy(image.To, image.From, image.Bytes); err != nil {
				return m.Broken(a.f, nil, err)
			}
			image.Bytes = 0
			for _, r := range p.inputs {
				t.feed.Holds(r.Tensor, 0)
			}
		}
		for k := range a.f.Reads {
			x := a.f.Reads[k].Tensor
			if t.feed.Holds(x, a.data) {
				continue
			}
			if err := main.Copy(x.Offset, m.RuntimeArea.Inbox[x]+program.PartOf(x, a.data)*x.Bytes, x.Bytes); err != nil {
				return m.Broken(a.f, nil, err)
			}
		}
		if a.lastRead {
			if err := main.Publish(p.consumed); err != nil {
				return m.Broken(a.f, nil, err)
			}
		}
		if err := m.Enqueue(a.f, a.micro); err != nil {
			return err
		}
		if n := len(a.f.Status); n > 0 && p.words[i] >= 0 {
			from := m.RuntimeArea.Words + 8*a.f.Status[0].Word
			if err := main.Copy(m.RuntimeArea.Words+8*p.words[i], from, 8*n); err != nil {
				return m.Broken(a.f, nil, err)
			}
		}
	}
	if err := m.Settle(); err != nil {
		return err
	}
	results := t.resultTensors()
	for i, r := range results[:machine.InBlock] { // they lie where any other function may write
		if r == nil {
			continue
		}
		if err := main.Copy(m.RuntimeArea.Results+8*i, r.Offset, r.Bytes); err != nil {
			return m.Broken(t.last, nil, err)
		}
	}
	return nil
}

// close gives back what is left.
func (p *pacer) close() {
	for _, r := range p.recordings {
		p.t.m.Dev.Drop(r.graph)
	}
}
