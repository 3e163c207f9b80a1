package loop

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/internal/trace"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
)

// action is one function of a step on one micro-batch.
type action struct {
	f        *machine.Function
	micro    int    // the micro-batch
	data     int    // part of the rank's batch that f reads: micro, or 0 of a batch that the program splits itself
	label    string // in a trace: F3 is the forward pass of micro-batch 3
	lastRead bool   // no later action reads the batch
}

// accumulated makes the actions of a step without a schedule: @micro for each micro-batch but the last, then @step.
func (t *trainer) accumulated() (err error) {
	micro := t.m.Funcs[abi.FuncMicro]
	functions := []*machine.Function{t.last}
	if micro != nil {
		functions = append(functions, micro)
	}
	if t.apart.local != nil {
		functions = append(functions, t.apart.local)
	}
	if t.feed, err = t.m.NewFeeder(functions...); err != nil {
		return err
	}
	if t.feed.Calls > 1 && micro == nil {
		return fmt.Errorf("BUG: %d micro-batches without @micro", t.feed.Calls)
	}
	for i := range t.feed.Calls - 1 {
		t.actions = append(t.actions, action{f: micro, micro: i, data: i})
	}
	t.actions = append(t.actions, action{f: t.last, micro: t.Plan.Train.Microbatches - 1, data: t.feed.Calls - 1})
	t.finish()
	return nil
}

// scheduled makes the actions that the plan lists.
func (t *trainer) scheduled() (err error) {
	var functions []*machine.Function
	for _, name := range slices.Sorted(maps.Keys(t.m.Slots)) {
		for _, f := range t.m.Slots[name] {
			if f != nil {
				functions = append(functions, f)
			}
		}
	}
	if t.feed, err = t.m.NewFeeder(functions...); err != nil {
		return err
	}
	for _, a := range t.Plan.Prog.Actions {
		t.actions = append(t.actions, action{f: t.m.Slots[a.Func][a.Slot], micro: a.Micro, data: min(a.Micro, t.feed.Calls-1)})
	}
	t.last = t.actions[len(t.actions)-1].f
	t.finish()
	return nil
}

// finish names the actions and finds the last one that reads data.
func (t *trainer) finish() {
	last := len(t.actions) - 1
	for i := range t.actions {
		a := &t.actions[i]
		a.label = label(a.f.Name, a.micro)
		if len(a.f.Reads) > 0 {
			last = i
		}
	}
	t.actions[last].lastRead = true
}

// label is F3 for @fwd.0 of micro-batch 3, F3 of chunk 1 for @fwd.1; other functions go by their names.
func label(function string, micro int) string {
	kind, chunk, ok := abi.ParseChunkFunc(function)
	switch {
	case function == abi.FuncStep:
		return function
	case !ok:
		return fmt.Sprintf("%s %d", function, micro)
	case chunk == 0:
		return fmt.Sprintf("%s%d", kind, micro)
	}
	return fmt.Sprintf("%s%d of chunk %d", kind, micro, chunk)
}

// act does one action on its part of batch b.
func (t *trainer) act(a *action, b *data.Batch) error {
	begin := time.Time{}
	if t.watch.Trace != nil {
		begin = time.Now()
	}
	if err := t.feed.Put(b, a.f, a.data); err != nil {
		return t.failed(err)
	}
	if err := t.lookAtInputs(a.f, a.data); err != nil {
		return err
	}
	if err := t.m.Run(a.f, a.micro); err != nil {
		return t.failed(err)
	}
	if t.watch.Trace != nil {
		t.watch.Trace.Add(trace.LaneActions, a.label, "", begin, time.Since(begin))
	}
	return nil
}
