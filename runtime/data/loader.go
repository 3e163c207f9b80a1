package data

import (
	"context"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Config says which part of which steps a loader reads. Rank and Ranks count data-parallel
// replicas, not processes: ranks that hold parts of one replica read the same samples.
type Config struct {
	Sampler Sampler
	Rank    int   // 0 <= Rank < Ranks
	Ranks   int   // 0 stands for 1
	Micro   int   // micro-batches in a step; 0 stands for 1
	Start   int64 // first global step
	Stop    int64 // global step after the last; 0 for no end
	Slots   int   // batches read ahead; 0 stands for 2

	Unread []bool // inputs of which this process needs no rows: their Inputs are nil; nil reads all

	Alloc func(n int) ([]byte, error) // makes the buffers, such as memory that a device reads directly; nil makes plain ones
}

// Batch is what one rank needs for one global step: rows Rank*B/Ranks ... of the global
// batch, micro-batch m being the rows m*len/Micro ... of these. It is the caller's until
// Release.
type Batch struct {
	Step, Epoch int64
	Inputs      [][]byte  // for each input, Rows samples one after another in the program's type
	Weights     []float32 // for each row: 1, or 0 for padding
	Rows        int       // rows of this rank
	Valid       int       // of these, rows that count
	GlobalValid int       // rows that count over all ranks: what a mean loss divides by

	micro int
	home  chan<- *Batch
}

// Micro returns the rows of one micro-batch of an input.
func (b *Batch) Micro(input, m int) []byte {
	n := len(b.Inputs[input]) / b.micro
	return b.Inputs[input][m*n : (m+1)*n]
}

// MicroWeights returns the weights of one micro-batch.
func (b *Batch) MicroWeights(m int) []float32 {
	n := len(b.Weights) / b.micro
	return b.Weights[m*n : (m+1)*n]
}

// Release lets the loader fill the batch again. It must be called once, after which the
// batch must not be looked at.
func (b *Batch) Release() { b.home <- b }

// Loader reads batches ahead of their use, in a goroutine, into a fixed set of buffers.
// Once running it allocates nothing.
type Loader struct {
	d       *Dataset
	cfg     Config
	free    chan *Batch
	ready   chan *Batch
	stop    chan struct{}
	once    sync.Once
	done    sync.WaitGroup
	failure error // why the goroutine ended; set before ready is closed
}

// Loader starts reading. The number of ranks and of micro-batches must divide the batch.
func (d *Dataset) Loader(cfg Config) (*Loader, error) {
	cfg.Ranks, cfg.Micro = max(cfg.Ranks, 1), max(cfg.Micro, 1)
	if cfg.Slots <= 0 {
		cfg.Slots = 2
	}
	if err := cfg.Sampler.Check(); err != nil {
		return nil, err
	}
	have := d.samples
	if cfg.Sampler.Random {
		have = d.starts
	}
	b, parts := cfg.Sampler.Batch, cfg.Ranks*cfg.Micro
	switch {
	case cfg.Sampler.Samples > have:
		return nil, fmt.Errorf("BUG: the sampler has %d samples, but the data set has %d", cfg.Sampler.Samples, have)
	case cfg.Rank < 0 || cfg.Rank >= cfg.Ranks:
		return nil, fmt.Errorf("BUG: there is no data-parallel rank %d of %d", cfg.Rank, cfg.Ranks)
	case b%parts != 0:
		return nil, fmt.Errorf("a global batch of %s cannot be divided evenly over %s x %s; "+
			"one of %d can", printable.Count(b, "sample"), printable.Count(cfg.Ranks, "rank"), printable.Count(cfg.Micro, "micro-batch"), (b/parts+1)*parts)
	case len(cfg.Unread) > 0 && len(cfg.Unread) != len(d.inputs):
		return nil, fmt.Errorf("BUG: Unread has %d entries, but the data set has %d inputs", len(cfg.Unread), len(d.inputs))
	case cfg.Start < 0:
		return nil, fmt.Errorf("BUG: the loader cannot start at step %d", cfg.Start)
	}
	l := &Loader{d: d, cfg: cfg, free: make(chan *Batch, cfg.Slots), ready: make(chan *Batch, cfg.Slots),
		stop: make(chan struct{})}
	rows := b / cfg.Ranks
	for range cfg.Slots {
		s, err := d.batch(&cfg, rows)
		if err != nil {
			return nil, err
		}
		s.home = l.free
		l.free <- s
	}
	l.done.Add(1)
	go l.run()
	return l, nil
}

// batch makes an empty batch.
func (d *Dataset) batch(cfg *Config, rows int) (*Batch, error) {
	alloc := cfg.Alloc
	if alloc == nil {
		alloc = func(n int) ([]byte, error) { return make([]byte, n), nil }
	}
	weights, err := alloc(4 * rows)
	if err != nil {
		return nil, err
	}
	s := &Batch{Rows: rows, Weights: unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(weights))), rows), micro: cfg.Micro}
	for i := range d.inputs {
		var room []byte
		if !cfg.skips(i) {
			if room, err = alloc(rows * d.RowBytes(i)); err != nil {
				return nil, err
			}
		}
		s.Inputs = append(s.Inputs, room)
	}
	return s, nil
}

func (c *Config) skips(input int) bool { return len(c.Unread) > 0 && c.Unread[input] }

// Eval reads every sample once, in order, the last batch padded.
func (d *Dataset) Eval(batch, rank, ranks, micro int) (*Loader, error) {
	s := Sampler{Samples: d.samples, Batch: batch}
	if err := s.Check(); err != nil {
		return nil, err
	}
	return d.Loader(Config{Sampler: s, Rank: rank, Ranks: ranks, Micro: micro, Stop: s.Steps()})
}

// Next waits for the next step's batch. It returns io.EOF after the last step, the
// context's error if that ends first, and again the same error after any other.
func (l *Loader) Next(ctx context.Context) (*Batch, error) {
	select {
	case b, ok := <-l.ready:
		if !ok {
			return nil, l.failure
		}
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Close ends the reading. It may be called twice, and while batches are out.
func (l *Loader) Close() {
	l.once.Do(func() { close(l.stop) })
	l.done.Wait()
}

func (l *Loader) run() {
	defer l.done.Done()
	defer close(l.ready)
	debug.SetPanicOnFault(true) // a mapped file that was cut short; fill makes it an error
	room := l.d.newScratch()
	for step := l.cfg.Start; l.cfg.Stop == 0 || step < l.cfg.Stop; step++ {
		var b *Batch
		select {
		case b = <-l.free:
		case <-l.stop:
			l.failure = fmt.Errorf("the data loader is closed")
			return
		}
		if err := l.fill(b, step, room); err != nil {
			l.failure = err
			return
		}
		select {
		case l.ready <- b:
		case <-l.stop:
			l.failure = fmt.Errorf("the data loader is closed")
			return
		}
	}
	l.failure = io.EOF
}

func (l *Loader) fill(b *Batch, step int64, room *scratch) (err error) {
	input := 0
	defer func() {
		switch r := recover().(type) {
		case nil:
		case interface{ Addr() uintptr }: // the fault of a read outside what is left of a file
			err = l.d.columns[input].cut(r.Addr())
		default:
			panic(r)
		}
	}()
	s := &l.cfg.Sampler
	b.Step, b.Epoch = step, s.Epoch(step)
	b.GlobalValid, b.Valid = s.Valid(step), 0
	for row := range b.Rows {
		sample, counts := s.At(step, l.cfg.Rank*b.Rows+row)
		b.Weights[row] = 0
		if counts {
			b.Weights[row] = 1
			b.Valid++
		}
		for i := range b.Inputs {
			if l.cfg.skips(i) {
				continue
			}
			input = i
			size := l.d.columns[i].out
			dst := b.Inputs[i][row*size : (row+1)*size]
			if err := l.d.read(i, sample, s.Random, dst, room); err != nil {
				return err
			}
			if in := &l.d.inputs[i]; !counts && in.Target && in.Ignore != nil && !kinds[in.DType].float {
				v := room.ints[:in.size()]
				for k := range v {
					v[k] = *in.Ignore
				}
				storeInts(dst, v, in.DType)
			}
		}
	}
	return nil
}

// cut names the file whose mapped bytes could not be read at addr.
func (c *column) cut(addr uintptr) error {
	for _, p := range c.parts {
		if start := uintptr(unsafe.Pointer(unsafe.SliceData(p.data))); addr >= start && addr < start+uintptr(len(p.data)) {
			return fmt.Errorf("%s: the file became shorter, or its disk failed, while it was being read", p.path)
		}
	}
	return fmt.Errorf("BUG: a fault at address %#x while array %q was read", addr, c.key)
}
