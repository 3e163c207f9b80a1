package train

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/trace"
)

// action is one function of a step on one micro-batch.
type action struct {
	f        *function
	micro    int
	data     int    // part of the rank's batch that it reads: micro, or 0 of a batch that the program splits itself
	label    string // in a trace: F3 is the forward pass of micro-batch 3
	lastRead bool   // no later action reads the batch
}

// accumulated makes the actions of a step without a schedule: @micro for each micro-batch but the last, then @step.
func (t *trainer) accumulated() (err error) {
	micro := t.m.funcs[FuncMicro]
	functions := []*function{t.last}
	if micro != nil {
		functions = append(functions, micro)
	}
	if t.apart.local != nil {
		functions = append(functions, t.apart.local)
	}
	if t.feed, err = t.m.newFeeder(functions...); err != nil {
		return err
	}
	if t.feed.calls > 1 && micro == nil {
		return fmt.Errorf("BUG: %d micro-batches without @micro", t.feed.calls)
	}
	for i := range t.feed.calls - 1 {
		t.actions = append(t.actions, action{f: micro, micro: i, data: i})
	}
	t.actions = append(t.actions, action{f: t.last, micro: t.plan.Train.Microbatches - 1, data: t.feed.calls - 1})
	t.finish()
	return nil
}

// scheduled makes the actions that the plan lists.
func (t *trainer) scheduled() (err error) {
	var functions []*function
	for _, name := range slices.Sorted(maps.Keys(t.m.slots)) {
		for _, f := range t.m.slots[name] {
			if f != nil {
				functions = append(functions, f)
			}
		}
	}
	if t.feed, err = t.m.newFeeder(functions...); err != nil {
		return err
	}
	for _, a := range t.plan.prog.Actions {
		t.actions = append(t.actions, action{f: t.m.slots[a.Func][a.Slot], micro: a.Micro, data: min(a.Micro, t.feed.calls-1)})
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
		a.label = label(a.f.name, a.micro)
		if len(a.f.reads) > 0 {
			last = i
		}
	}
	t.actions[last].lastRead = true
}

// label is F3 for @fwd.0 of micro-batch 3, F3 of chunk 1 for @fwd.1; other functions go by their names.
func label(function string, micro int) string {
	kind, chunk, _ := strings.Cut(function, ".")
	letter := map[string]string{"fwd": "F", "bwd": "B", "wgrad": "W"}[kind]
	switch {
	case function == FuncStep:
		return function
	case letter == "":
		return fmt.Sprintf("%s %d", function, micro)
	case chunk == "0":
		return fmt.Sprintf("%s%d", letter, micro)
	}
	return fmt.Sprintf("%s%d of chunk %s", letter, micro, chunk)
}

// act does one action on its part of batch b.
func (t *trainer) act(a *action, b *data.Batch) error {
	begin := time.Time{}
	if t.watch.trace != nil {
		begin = time.Now()
	}
	if err := t.feed.put(b, a.f, a.data); err != nil {
		return t.failed(err)
	}
	if err := t.lookAtInputs(a.f, a.data); err != nil {
		return err
	}
	if err := t.m.run(a.f, a.micro); err != nil {
		return t.failed(err)
	}
	if t.watch.trace != nil {
		t.watch.trace.Add(trace.LaneActions, a.label, "", begin, time.Since(begin))
	}
	return nil
}
