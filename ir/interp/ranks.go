package interp

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
)

// RunRanks evaluates f on world ranks of m's mesh, args for each.
func RunRanks(m *ir.Module, f *ir.Func, world int, args []map[string]*ir.Array) ([]*Outcome, error) {
	return Options{}.RunRanks(m, f, world, args)
}

// RunRanks is RunRanks with options.
func (o Options) RunRanks(m *ir.Module, f *ir.Func, world int, args []map[string]*ir.Array) ([]*Outcome, error) {
	if world != m.Mesh.Ranks() || len(args) != world {
		return nil, fmt.Errorf("%d ranks get %d sets of arguments, but mesh %s has %d ranks", world, len(args), m.Mesh, m.Mesh.Ranks())
	}
	out := make([]*Outcome, world)
	err := together(m.Mesh, false, func(rank int, b *board) error {
		e, err := enter(f, args[rank])
		if err != nil {
			return err
		}
		if err := o.run(f, e, rank, b); err != nil {
			return err
		}
		out[rank] = e.leave(f)
		return nil
	})
	return out, err
}

// together runs body for every rank of m at once, and returns the first failure, which ends all of them.
func together(m mesh.Mesh, byTag bool, body func(rank int, b *board) error) error {
	b := newBoard(m)
	b.byTag = byTag
	run := func(rank int) {
		err := body(rank, b)
		if err != nil && !errors.Is(err, b.failure()) {
			err = fmt.Errorf("rank %d: %w", rank, err)
		}
		b.leave(err)
	}
	if m.Ranks() == 1 {
		run(0)
		return b.close()
	}
	var wg sync.WaitGroup
	for r := range m.Ranks() {
		wg.Go(func() { run(r) })
	}
	wg.Wait()
	return b.close()
}

// failure is what ended the ranks, nil while nothing did.
func (b *board) failure() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.err
}

// run evaluates the ops of f on one rank, which knows e.
func (o Options) run(f *ir.Func, e env, rank int, b *board) error {
	at := "@" + f.Name
	if o.Micro > 0 {
		at = fmt.Sprintf("@%s, micro-batch %d,", f.Name, o.Micro)
	}
	list := f.Ops
	if o.Shuffle != 0 {
		if f.Calls != nil {
			return o.runCalls(f, e, rank, b, at)
		}
		list = shuffled(f, rand.New(rand.NewPCG(o.Shuffle, uint64(rank))))
	}
	for _, op := range list {
		in := e.operands(op)
		var out []*ir.Array
		var err error
		if op.Def.Rules.Collective == "" {
			out, err = Op(op, in)
		} else {
			out, err = b.do(call{rank, op, at}, o.Micro, in)
		}
		if err != nil {
			if err == b.failure() {
				return err
			}
			return fmt.Errorf("%s: %w", at, err)
		}
		for i, v := range op.Out {
			if e[v] = out[i]; !o.Exact {
				e[v] = rounded(out[i])
			}
		}
		if o.Watch != nil {
			b.mu.Lock()
			o.Watch(rank, op, out)
			b.mu.Unlock()
		}
	}
	return nil
}
