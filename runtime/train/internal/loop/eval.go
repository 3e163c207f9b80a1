package loop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
	"github.com/gtc-compiler/gtc/runtime/train/internal/report"
)

// evaluator runs @eval over a data set, all ranks together.
type evaluator struct {
	s    *session
	f    *machine.Function // @eval
	feed *machine.Feeder
	set  *data.Dataset
	done int64 // step that was evaluated last; -1 for none

	results [3]*abi.Tensor // loss_sum, count and correct; the last two may be nil
	shared  bool           // the program itself adds the results over the ranks
}

func (s *session) newEvaluator(paths []string) (*evaluator, error) {
	e := &evaluator{s: s, f: s.m.Funcs[abi.FuncEval], done: -1}
	if e.f == nil {
		return nil, ranks.Usagef("this program was compiled without evaluation")
	}
	var err error
	if e.feed, err = s.m.NewFeeder(e.f); err != nil {
		return nil, err
	}
	for i, name := range []string{abi.LossSum, abi.Count, abi.Correct} {
		e.results[i] = e.f.Result(name)
	}
	if e.results[0] == nil {
		return nil, errors.New("BUG: @eval has no result loss_sum")
	}
	for i := range e.f.Steps {
		if c := e.f.Steps[i].Call.Comm; c != nil && c.Kind == mesh.AllReduce && (c.Axis == mesh.DataAxis || c.Axis == mesh.PipelineAxis) {
			e.shared = true
		}
	}
	inputs, err := e.feed.Describe()
	if err != nil {
		return nil, err
	}
	if e.set, err = data.Open(paths, inputs, s.cfg.opt); err != nil {
		return nil, ranks.Usagef("--eval-data: %w", err)
	}
	if why := s.Plan.Meets(abi.FuncEval); why != "" && e.set.Len() < int64(e.batch()) {
		e.set.Close()
		return nil, tooFew("--eval-data", e.set.Len(), e.batch(), why)
	}
	return e, nil
}

func (e *evaluator) close() { e.set.Close() }

// batch is the number of samples of a batch on all ranks.
func (e *evaluator) batch() int { return e.feed.Rows * e.calls() * e.s.Plan.Train.DP }

// calls is how many calls of @eval make up a batch.
func (e *evaluator) calls() int {
	if e.s.Plan.Train.Together {
		return e.feed.Calls
	}
	return 1
}

// sampler takes every sample once, in order; but not those of a last batch that is not full, where what fills it up would count.
func (e *evaluator) sampler() data.Sampler {
	return data.Sampler{Samples: e.set.Len(), Batch: e.batch(), DropLast: e.s.Plan.Meets(abi.FuncEval) != ""}
}

func (e *evaluator) loader() (*data.Loader, error) {
	x, s := e.s.Plan, e.sampler()
	return e.set.Loader(data.Config{Sampler: s, Rank: x.DP(), Ranks: x.Train.DP, Micro: e.calls(), Stop: s.Steps(), Unread: e.feed.Unread})
}

// run evaluates the parameters as they are; nil when a signal asks to stop.
func (e *evaluator) run() (*report.Evaluation, error) {
	begin := time.Now()
	if err := e.s.sameBuffers(); err != nil {
		return nil, err
	}
	l, err := e.loader()
	if err != nil {
		return nil, ranks.Usage(err)
	}
	defer l.Close()
	var sums [3]float64
	samples := int64(0)
	for {
		b, err := l.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, ranks.Usage(err)
		}
		samples += int64(b.GlobalValid)
		e.feed.Fresh()
		for micro := range e.calls() {
			if err = e.call(b, micro, &sums); err != nil {
				break
			}
		}
		b.Release()
		if err != nil {
			return nil, err
		}
		if signal, err := e.s.stop.agreed(e.s.World); signal != 0 || err != nil {
			return nil, err
		}
	}
	if err := e.add(&sums); err != nil {
		return nil, err
	}
	out := &report.Evaluation{Loss: sums[0] / sums[1], Accuracy: math.NaN(), Perplexity: math.NaN(), Samples: samples, Took: time.Since(begin),
		Noise: e.s.Plan.Train.Noise[abi.FuncEval]}
	if s := e.sampler(); s.Unseen() > 0 {
		out.Unseen, out.Batch, out.Why = s.Unseen(), s.Batch, e.s.Plan.Meets(abi.FuncEval)
	}
	if e.results[2] != nil {
		out.Accuracy = sums[2] / sums[1]
	}
	if e.s.Plan.Train.Metric == "perplexity" {
		out.Perplexity = math.Exp(out.Loss)
	}
	return out, nil
}

// call runs @eval on micro-batch micro of b and adds what it gives to sums.
func (e *evaluator) call(b *data.Batch, micro int, sums *[3]float64) error {
	x := e.s.Plan
	if err := e.feed.Put(b, e.f, micro); err != nil {
		return err
	}
	if input, at := e.s.badInput(e.f); input != nil {
		row := (int64(x.DP())*int64(e.calls())+int64(micro))*int64(e.feed.Rows) + int64(e.feed.Row(input, at))
		return fmt.Errorf("GTC_NAN: evaluation, sample %d of the data: input %q holds a NaN (element %d)",
			b.Step*int64(e.batch())+row, input.Name, at)
	}
	if err := e.s.m.Run(e.f, micro); err != nil {
		return fmt.Errorf("evaluation, batch %d: %w", b.Step, err)
	}
	for i, t := range e.results {
		if t != nil {
			v, err := e.s.m.Scalar(t)
			if err != nil {
				return err
			}
			sums[i] += v
		}
	}
	if e.results[1] == nil {
		sums[1]++
	}
	return nil
}

var evalSite = comm.Site{Tensor: "evaluation sums"}

// add sums over the data-parallel ranks what the program has not.
func (e *evaluator) add(sums *[3]float64) error {
	g := e.s.m.Axes[mesh.DataAxis]
	if e.shared || g == nil || g.Size == 1 {
		return nil
	}
	var b [24]byte
	for i, v := range sums {
		binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(v))
	}
	if err := g.Comm.AllReduce(&evalSite, b[:], comm.F64, comm.Sum); err != nil {
		return err
	}
	for i := range sums {
		sums[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return nil
}

// sameBuffers gives every rank the buffers of the first one along dp: running statistics that each rank keeps of its
// own batches differ, and it is rank 0's that are saved, as PyTorch's DistributedDataParallel does.
func (s *session) sameBuffers() error {
	g := s.m.Axes[mesh.DataAxis]
	if g == nil || g.Size == 1 {
		return nil
	}
	for i := range s.Plan.Prog.Tensors {
		t := &s.Plan.Prog.Tensors[i]
		if t.Role != abi.RoleBuffer || t.Bytes == 0 || t.Frozen || program.Split(t, mesh.DataAxis) {
			continue
		}
		site := &comm.Site{Tensor: t.Name, Loc: t.Loc}
		err := s.m.Edit(t, func(b []byte) error { return g.Comm.Broadcast(site, b, comm.U8, 0) })
		if err != nil {
			return err
		}
	}
	return nil
}

// evalOnly is the mode of --eval-only.
func (s *session) evalOnly() error {
	paths := s.cfg.evalData
	if len(paths) == 0 {
		paths = s.cfg.data
	}
	e, err := s.newEvaluator(paths)
	if err != nil {
		return err
	}
	defer e.close()
	if err := s.sameData("--eval-data", e.set); err != nil {
		return err
	}
	if err := s.resume(nil); err != nil {
		return err
	}
	got, err := e.run()
	if err != nil {
		return err
	}
	s.rep.Eval(s.step, got)
	return nil
}
