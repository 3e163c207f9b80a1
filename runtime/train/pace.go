package train

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
)

// pacer queues training steps on a device without waiting for each. The batch of the next step is on its way to the device
// while the present one runs; the results of a step come back later and are looked at in the order of the steps, so that a run
// ends at the same step as if each had been waited for. A step that ran once as it is runs as one graph from then on.
type pacer struct {
	t      *trainer
	copies device.Stream
	// Of the inbox: the next batch is in it, and the present one has been taken out of it.
	uploaded, consumed device.Event
	ahead              *data.Batch // in the inbox, or on its way there
	ring               [pace]past
	issued, seen       int // steps queued, and looked at
	recordings         map[*function]*recording
	filled             bool  // the inbox has the fixed batch
	words              []int // first status word of each action's copy; -1 for none
	inputs             []read
}

// pace is how many steps may be queued before the oldest is waited for.
const pace = 8

// past is a step whose results are on their way.
type past struct {
	step  int64
	block []byte // status words and results
	over  device.Event
}

// recording is a step as a graph, by its last function.
type recording struct {
	graph   device.Graph
	refused bool // it cannot be one
}

// slots is how many batches the loader reads ahead of a device: one is being copied meanwhile.
const slots = 3

// newPacer prepares the queue of t's steps; nil where every call is looked at, or on a device that does its work at once.
func (t *trainer) newPacer() (*pacer, error) {
	m := t.m
	if m.local != nil || t.watch.calls() {
		return nil, nil
	}
	p := &pacer{t: t, recordings: map[*function]*recording{}}
	t.rate = math.NaN() // until it is read
	var errs [4]error
	p.copies, errs[0] = m.dev.NewStream(false)
	p.uploaded, errs[1] = m.dev.NewEvent()
	p.consumed, errs[2] = m.dev.NewEvent()
	for i := range p.ring {
		e := &p.ring[i]
		var err error
		if e.block, err = m.dev.Pinned(8 * (m.behind.limit + inBlock)); err == nil {
			e.over, err = m.dev.NewEvent()
		}
		errs[3] = errors.Join(errs[3], err)
	}
	if err := errors.Join(errs[:]...); err != nil {
		return nil, err
	}
	for i := range t.actions {
		f := t.actions[i].f
		for _, r := range f.reads {
			if !slices.ContainsFunc(p.inputs, func(q read) bool { return q.t == r.t }) {
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
		n := len(p.t.actions[i].f.status)
		if l := p.t.apart.local; l != nil && i == len(p.t.actions)-1 {
			n = max(n, len(l.status))
		}
		if n == 0 {
			continue
		}
		var err error
		if p.words[i], err = m.giveWords(n); err != nil {
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
	t.watch.data += time.Since(begin)
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
	err := m.main.Wait(p.uploaded)
	if err == nil {
		err = p.run()
	}
	past := &p.ring[p.issued%pace]
	past.step = t.step + 1
	if err == nil {
		err = m.main.Download(past.block, m.behind.words)
	}
	if err == nil {
		err = m.main.Record(past.over)
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
	t.watch.steps++
	t.watch.time += time.Since(begin)
	if err := p.catch(p.due()); err != nil {
		return err
	}
	return t.stepped()
}

// due reports whether the results of the step are wanted now. Every rank gives the same answer, so that all end alike.
func (p *pacer) due() bool {
	t, c := p.t, p.t.cfg
	every := func(n int64) bool { return n > 0 && t.step%n == 0 }
	return p.issued == 1 || t.step == t.total || c.bench || t.watch.hash > 0 || every(c.logEvery) || every(c.saveEvery) || t.eval != nil && every(c.evalEvery)
}

// catch looks at the results of steps: all of them, or those that are there.
func (p *pacer) catch(all bool) error {
	if all && p.t.lr != nil { // of the last step, before anything else is where it lies
		rate, err := p.t.m.scalar(p.t.lr)
		if err != nil {
			return p.t.failed(err)
		}
		p.t.rate = rate
	}
	for p.seen < p.issued {
		if !all {
			if p.t.world != nil {
				return nil // the ranks must find the same
			}
			over, err := p.t.m.dev.Done(p.ring[p.seen%pace].over)
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
	if err := m.until(func() (bool, error) { return m.dev.Done(past.over) }); err != nil {
		return t.failed(err)
	}
	p.seen++
	for i := range t.actions {
		a := &t.actions[i]
		for k, s := range a.f.status {
			word := s.word
			if p.words[i] >= 0 {
				word = p.words[i] + k
			}
			if row := int64(binary.NativeEndian.Uint64(past.block[8*word:])); row != noRow {
				return p.refused(a, s.call, row, past.step)
			}
		}
	}
	v := [numResults]float64{}
	for i := range inBlock {
		v[i] = math.NaN()
	}
	v[inBlock] = t.rate
	results := t.resultTensors()
	for i, r := range results[:inBlock] {
		if r != nil {
			v[i] = firstValue(past.block[8*(m.behind.limit+i):], r.DType)
		}
	}
	if err := t.keep(past.step, v); err != nil {
		return err
	}
	return t.divergedAt(past.step)
}

// refused is the error of a call that refused an index in a step. The batch of that step is read once more to see it.
func (p *pacer) refused(a *action, c *Call, row, step int64) error {
	t := p.t
	t.step = step - 1
	cfg := t.reading
	cfg.Start, cfg.Stop, cfg.Slots, cfg.Alloc = t.step-t.origin, step-t.origin, 1, nil
	look := func(*abi.Tensor, int64) (int64, bool) { return 0, false }
	if l, err := t.set.Loader(cfg); err == nil {
		defer l.Close()
		if b, err := l.Next(context.Background()); err == nil {
			look = func(x *abi.Tensor, i int64) (int64, bool) {
				r := slices.IndexFunc(a.f.reads, func(r read) bool { return r.t == x })
				if r < 0 {
					return 0, false
				}
				return index(a.f.reads[r].rows(b, a.data)[int(i)*elemSizes[x.DType]:], x.DType)
			}
		}
	}
	return t.failed(t.m.refused(a.f, c, row, a.micro, look))
}

// fetch has the next batch copied to the inbox, once the present one is out of it.
func (p *pacer) fetch() error {
	t, m := p.t, p.t.m
	if p.ahead != nil { // its copy is over before the next one's begins
		if err := m.until(func() (bool, error) { return m.dev.Done(p.uploaded) }); err != nil {
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
		return usage(err)
	}
	p.ahead = b
	err = p.copies.Wait(p.consumed)
	for i := range p.inputs {
		r := &p.inputs[i]
		rows, parts := r.all(b), partOf(r.t, t.feed.calls-1)+1
		if len(rows) != parts*r.t.Bytes {
			return fmt.Errorf("BUG: a batch has %d bytes of %q, the program reads %d times %d", len(rows), r.t.Name, parts, r.t.Bytes)
		}
		if err == nil {
			err = p.copies.Upload(m.behind.inbox[r.t], rows)
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
		t.feed.fresh()
		for i := range t.actions {
			a := &t.actions[i]
			if err := t.feed.fixed(batch, a.f, a.data); err != nil {
				return inFile("--fixed-batch "+t.cfg.fixedBatch, err)
			}
			for _, r := range a.f.reads {
				if err := m.main.Copy(m.behind.inbox[r.t]+partOf(r.t, a.data)*r.t.Bytes, r.t.Offset, r.t.Bytes); err != nil {
					return m.broken(a.f, nil, err)
				}
			}
		}
		p.filled = true
	}
	if err := p.run(); err != nil {
		return t.failed(err)
	}
	if err := m.wait(m.main); err != nil {
		return t.failed(err)
	}
	for i := range t.actions {
		if err := m.lookAtWords(t.actions[i].f, t.actions[i].micro); err != nil {
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
		p.recordings[t.last] = &recording{refused: t.env.getenv("GTC_GRAPH") == "0" || !m.recordable()}
		return p.queue()
	case r.refused:
		return p.queue()
	case r.graph != 0:
		return m.broken(t.last, nil, m.main.Launch(r.graph))
	}
	if err := m.main.Capture(); err != nil {
		return m.broken(t.last, nil, err)
	}
	err := p.queue()
	graph, ended := m.main.End()
	if err = errors.Join(err, ended); err == nil {
		r.graph = graph
		return m.broken(t.last, nil, m.main.Launch(graph))
	}
	m.dev.Drop(graph)
	var f device.Failure
	if errors.As(err, &f) && f.Lost() {
		return m.broken(t.last, nil, err)
	}
	r.refused = true
	t.rep.note("steps run kernel by kernel: they cannot be recorded as a graph: %v", err)
	return p.queue()
}

// queue queues the actions of a step one by one.
func (p *pacer) queue() error {
	t, m := p.t, p.t.m
	main := m.main
	t.feed.fresh()
	image := m.behind.image
	for i := range t.actions {
		a := &t.actions[i]
		if len(a.f.reads) > 0 && image.Bytes > 0 {
			if err := main.Copy(image.To, image.From, image.Bytes); err != nil {
				return m.broken(a.f, nil, err)
			}
			image.Bytes = 0
			for _, r := range p.inputs {
				t.feed.holds(r.t, 0)
			}
		}
		for k := range a.f.reads {
			x := a.f.reads[k].t
			if t.feed.holds(x, a.data) {
				continue
			}
			if err := main.Copy(x.Offset, m.behind.inbox[x]+partOf(x, a.data)*x.Bytes, x.Bytes); err != nil {
				return m.broken(a.f, nil, err)
			}
		}
		if a.lastRead {
			if err := main.Publish(p.consumed); err != nil {
				return m.broken(a.f, nil, err)
			}
		}
		if err := m.enqueue(a.f, a.micro); err != nil {
			return err
		}
		if n := len(a.f.status); n > 0 && p.words[i] >= 0 {
			from := m.behind.words + 8*a.f.status[0].word
			if err := main.Copy(m.behind.words+8*p.words[i], from, 8*n); err != nil {
				return m.broken(a.f, nil, err)
			}
		}
	}
	if err := m.settle(); err != nil {
		return err
	}
	results := t.resultTensors()
	for i, r := range results[:inBlock] { // they lie where any other function may write
		if r == nil {
			continue
		}
		if err := main.Copy(m.behind.results+8*i, r.Offset, r.Bytes); err != nil {
			return m.broken(t.last, nil, err)
		}
	}
	return nil
}

// close gives back what is left.
func (p *pacer) close() {
	for _, r := range p.recordings {
		p.t.m.dev.Drop(r.graph)
	}
}
