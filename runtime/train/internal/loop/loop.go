// Package loop trains a program, or evaluates or checks it, as the flags of a rank say: it reads batches, does the actions of a step, keeps
// what it gives, saves and resumes checkpoints, and ends as its exit code says.
package loop

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/internal/trace"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
	"github.com/gtc-compiler/gtc/runtime/train/internal/report"
)

// trainer is the training loop of a session.
type trainer struct {
	*session
	actions []action          // of one step, in order
	last    *machine.Function // of the last action, which gives the results of the step
	feed    *machine.Feeder
	set     *data.Dataset
	sampler data.Sampler
	reading data.Config // how loader reads
	loader  *data.Loader
	pace    *pacer     // nil on a device that does its work at once, and where every call is looked at
	eval    *evaluator // nil without --eval-data
	total   int64      // step to reach
	origin  int64      // step at which the data began: 0, or that of --reset-data

	lossSum      *abi.Tensor // results of last; this one is always there, the others may be nil
	count        *abi.Tensor // what counts for the loss
	lr           *abi.Tensor // learning rate
	gradNorm     *abi.Tensor // of all mean gradients, before clipping
	lossScale    *abi.Tensor // where it is dynamic
	skippedSteps *abi.Tensor // number of steps so far whose gradients were not finite
	emptySteps   *abi.Tensor // number of steps so far in which nothing counted

	report.Results // of the last step
	apart          localSGD
	saved          int64 // step of the last checkpoint; -1 for none
}

// train is the default mode: train, evaluate, save.
func (s *session) train() (err error) {
	t := &trainer{session: s, saved: -1, Results: report.Results{Loss: math.NaN(), Norm: math.NaN()}}
	if err := t.prepare(); err != nil {
		return err
	}
	defer t.close()
	if err := s.lookAtParameters(); err != nil {
		return err
	}
	s.stop.graceful.Store(true)
	t.tellStart()
	signal, err := t.steps()
	if err != nil {
		return err
	}
	if signal == 0 && t.eval != nil && t.eval.done != s.step {
		if err := t.evaluate(); err != nil {
			return err
		}
	}
	if t.saved != s.step && s.step != t.rep.First { // what was not trained is saved already, or nothing
		if err := t.save(); err != nil {
			return err
		}
	}
	s.rep.End(t.step, &t.Results, signal)
	if signal != 0 {
		return ranks.StoppedBy(signal)
	}
	return nil
}

// nothing says why a run trains no step.
func (t *trainer) nothing() string {
	asked := fmt.Sprintf("--steps %d", t.total)
	if t.cfg.steps < 0 {
		asked = fmt.Sprintf("--epochs %d (%s)", max(t.cfg.epochs, min(1, t.total)), printable.Count(t.total, "step"))
	}
	if t.step == 0 {
		return "nothing to train: " + asked
	}
	return fmt.Sprintf("nothing to do: the checkpoint is at step %d, %s", t.step, asked)
}

// tellStart reports what is about to be trained, on what.
func (t *trainer) tellStart() {
	b := report.Beginning{Plan: t.Plan, Device: t.m.Dev.Info(), Threads: t.threads, Samples: t.set.Len(), LeftOut: t.sampler.Unseen(), Step: t.step, Total: t.total}
	for _, text := range []string{t.leftOut(), t.alone()} {
		if text != "" && t.step < t.total {
			b.Notes = append(b.Notes, text)
		}
	}
	for _, x := range t.set.Bindings() {
		b.Data = append(b.Data, printable.Line(fmt.Sprint(x)))
	}
	if t.step >= t.total {
		b.Nothing = t.nothing()
	}
	t.rep.Start(&b)
}

// prepare opens the data and finds the place to go on from.
func (t *trainer) prepare() (err error) {
	if err := t.functions(); err != nil {
		return err
	}
	inputs, err := t.feed.Describe()
	if err != nil {
		return err
	}
	if t.set, err = data.Open(t.cfg.data, inputs, t.cfg.opt); err != nil {
		return ranks.Usagef("--data: %w", err)
	}
	if len(t.cfg.evalData) > 0 {
		if t.eval, err = t.newEvaluator(t.cfg.evalData); err != nil {
			return err
		}
	}
	if err := t.resume(t); err != nil {
		return err
	}
	t.earlier()
	if !t.resumed || t.cfg.resetData {
		if err := t.seedNoise(); err != nil {
			return err
		}
	}
	if err := t.skippedBefore(); err != nil {
		return err
	}
	t.deal()
	if why := t.Plan.Meets(abi.FuncStep); why != "" && t.sampler.Steps() == 0 && t.set.Len() > 0 {
		return tooFew("--data", t.set.Len(), t.sampler.Batch, why)
	}
	if err := t.sampler.Check(); err != nil {
		return ranks.Usagef("--data: %w", err)
	}
	per := t.sampler.Steps()
	if err := t.AllOK("opening the data", t.writable()); err != nil {
		return err
	}
	if err := t.sameData("--data", t.set); err != nil {
		return err
	}
	if t.eval != nil {
		if err := t.sameData("--eval-data", t.eval.set); err != nil {
			return err
		}
	}
	switch t.total = per; {
	case t.cfg.steps >= 0:
		t.total = t.cfg.steps
	case t.cfg.epochs >= 0:
		t.total = t.cfg.epochs * per
	}
	if t.cfg.steps < 0 {
		t.total += t.origin
	}
	if t.step >= t.total {
		return nil
	}
	if t.pace, err = t.newPacer(); err != nil {
		return err
	}
	t.reading = data.Config{Sampler: t.sampler, Rank: t.Plan.DP(), Ranks: t.Plan.Train.DP,
		Micro: t.feed.Calls, Start: t.step - t.origin, Stop: t.total - t.origin, Unread: t.feed.Unread}
	if t.pace != nil {
		t.reading.Alloc, t.reading.Slots = t.m.Dev.Pinned, slots
	}
	t.loader, err = t.set.Loader(t.reading)
	return ranks.Usage(err)
}

// deal decides which samples make up each step.
func (t *trainer) deal() {
	t.sampler = t.set.Sampler(t.Plan.Train.Batch, t.cfg.seed, t.cfg.random)
	t.sampler.Shuffle = t.sampler.Shuffle && t.cfg.shuffle
	t.sampler.DropLast = t.cfg.dropLast || t.Plan.Meets(abi.FuncStep) != ""
}

var dataSite = comm.Site{Tensor: "samples", Collective: "agreement on the data"}

// sameData fails when ranks do not read the same number of samples: each takes its part of every batch of all, so that
// they would train on batches that nobody asked for, and one would wait for the others when it has more.
func (s *session) sameData(flag string, set *data.Dataset) error {
	if s.World == nil {
		return nil
	}
	mine := binary.LittleEndian.AppendUint64(nil, uint64(set.Len()))
	all := make([]byte, len(mine)*s.Plan.Ranks)
	if err := s.World.AllGather(&dataSite, all, mine, comm.I64); err != nil {
		return err
	}
	first := binary.LittleEndian.Uint64(all)
	for r := 1; r < s.Plan.Ranks; r++ {
		if n := binary.LittleEndian.Uint64(all[8*r:]); n != first {
			return ranks.Usagef("%s: all ranks must read the same data, of which each takes its part: rank 0 has %s, but rank %d has %d", flag, printable.Count(first, "sample"), r, n)
		}
	}
	return nil
}

// functions finds what a step does, and its results.
func (t *trainer) functions() (err error) {
	if t.last = t.m.Funcs[abi.FuncStep]; t.last == nil {
		return errors.New("this program was compiled without a training step")
	}
	if err := t.prepareLocal(); err != nil {
		return err
	}
	if t.Plan.Prog.Actions != nil {
		err = t.scheduled()
	} else {
		err = t.accumulated()
	}
	if err != nil {
		return err
	}
	t.watch.Flops = 0
	for _, a := range t.actions {
		t.watch.Flops += float64(a.f.Info.Flops)
	}
	return t.findResults()
}

// findResults finds what the last function of a step gives.
func (t *trainer) findResults() error {
	t.lossSum, t.count, t.lr = t.last.Result(abi.LossSum), t.last.Result(abi.Count), t.last.Result(abi.Rate)
	t.gradNorm = t.last.Result(abi.GradNorm)
	t.lossScale, t.skippedSteps = t.last.Result(abi.LossScale), t.last.Result(abi.Skipped)
	t.emptySteps = t.last.Result(abi.Empty)
	t.Scales, t.Skips, t.Empties = t.lossScale != nil, t.skippedSteps != nil, t.emptySteps != nil
	if t.lossSum == nil {
		return errors.New("BUG: @step has no result loss_sum")
	}
	return nil
}

func (t *trainer) close() {
	if t.loader != nil {
		t.loader.Close()
	}
	if t.pace != nil {
		t.pace.close()
	}
	if t.eval != nil {
		t.eval.close()
	}
	t.set.Close()
}

// steps trains until the total is reached or a signal asks to stop, which it returns.
func (t *trainer) steps() (signal int, err error) {
	for t.step < t.total {
		begin := time.Now()
		if err := t.one(); err != nil {
			return 0, err
		}
		took := time.Since(begin)
		if signal, err = t.stop.agreed(t.World); err != nil {
			return 0, err
		}
		if signal != 0 && t.pace != nil {
			if err := t.pace.catch(true); err != nil {
				return 0, err
			}
		}
		if err := t.watch.HashStep(t.m, t.step, t.Loss); err != nil {
			return 0, err
		}
		if err := t.diverged(); err != nil {
			return 0, err
		}
		t.rep.Step(t.step, &t.Results, took)
		if signal != 0 {
			return signal, nil
		}
		if t.eval != nil && t.cfg.evalEvery > 0 && t.step%t.cfg.evalEvery == 0 {
			if err := t.evaluate(); err != nil {
				return 0, err
			}
		}
		if t.cfg.saveEvery > 0 && t.step%t.cfg.saveEvery == 0 {
			if err := t.save(); err != nil {
				return 0, err
			}
		}
	}
	return 0, nil
}

// one does one optimizer step on the next batch. In steady state it allocates nothing.
func (t *trainer) one() error {
	if t.pace != nil {
		return t.pace.step()
	}
	begin := time.Now()
	b, err := t.loader.Next(context.Background())
	if err != nil {
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("BUG: the data ended before step %d", t.step)
		}
		return ranks.Usage(err)
	}
	if b.Step != t.step-t.origin {
		return fmt.Errorf("BUG: step %d got the data of step %d", t.step, b.Step+t.origin)
	}
	now := time.Now()
	t.watch.Data += now.Sub(begin)
	t.watch.Trace.Add(trace.LaneLoop, "wait for data", "", begin, now.Sub(begin))
	t.feed.Fresh()
	if err := t.choose(); err != nil {
		return err
	}
	for i := range t.actions {
		a := &t.actions[i]
		if err := t.act(a, b); err != nil {
			return err
		}
		if a.lastRead {
			b.Release()
		}
	}
	if err := t.finished(); err != nil {
		return err
	}
	took := time.Since(now)
	t.watch.Steps++
	t.watch.Time += took
	t.watch.Trace.Add(trace.LaneLoop, "step", "", now, took)
	return nil
}

// finished ends a step whose actions are done. Results are read first of all: they lie where any other function may write.
func (t *trainer) finished() error {
	if err := t.m.Settle(); err != nil {
		return err
	}
	t.step++
	if err := t.readResults(); err != nil {
		return err
	}
	return t.stepped()
}

// failed adds the step to an error of a kernel, and the sample to one of the data; those of other ranks say enough.
func (t *trainer) failed(err error) error {
	var c *comm.Error
	if errors.As(err, &c) {
		return err
	}
	var row *machine.RowError
	if errors.As(err, &row) && (row.Input != "" || row.From != "") && t.loader != nil {
		return fmt.Errorf("step %d: sample %d of --data: %w", t.step+1, t.sample(min(row.Micro, t.feed.Calls-1), row.Sample), err)
	}
	return fmt.Errorf("step %d: %w", t.step+1, t.m.Broken(t.last, nil, err))
}

// sample is the place in the data of a row of this rank's micro-batch of the present step.
func (t *trainer) sample(micro, row int) int64 {
	n, _ := t.sampler.At(t.step-t.origin, (t.Plan.DP()*t.feed.Calls+micro)*t.feed.Rows+row)
	return n
}

// readResults keeps the learning rate and the mean loss of the step over the global batch, which every rank has.
func (t *trainer) readResults() error {
	var v [machine.NumResults]float64
	for i, r := range t.resultTensors() {
		var err error
		if v[i] = math.NaN(); r != nil {
			if v[i], err = t.m.Scalar(r); err != nil {
				return t.failed(err)
			}
		}
	}
	return t.keep(t.step, v)
}

// resultTensors are what a step gives: the loss sum, the count, the loss scale, the number of steps skipped so far, the norm of the
// gradients, the number of empty steps so far, and the learning rate; all but the first may be nil.
func (t *trainer) resultTensors() [machine.NumResults]*abi.Tensor {
	return [machine.NumResults]*abi.Tensor{t.lossSum, t.count, t.lossScale, t.skippedSteps, t.gradNorm, t.emptySteps, t.lr}
}

// keep makes the results of a step the last ones. A step in which nothing counts has no mean loss: it is NaN, and the program has
// updated nothing.
func (t *trainer) keep(step int64, v [machine.NumResults]float64) error {
	t.Overflowed = v[3] > t.Skipped
	t.Loss, t.Scale, t.Skipped, t.Norm, t.Empty, t.Rate = v[0], v[2], v[3], v[4], v[5], v[6]
	if t.count == nil {
		return nil
	}
	n := v[1]
	t.Void = n == 0 && t.Loss == 0
	t.Loss /= n
	if t.Void && (t.cfg.onEmpty == "fail" || t.emptySteps == nil) {
		return fmt.Errorf("step %d: %s: %s", step, report.NothingCounts, t.kept())
	}
	return nil
}

// evaluate runs the evaluation and reports it.
func (t *trainer) evaluate() error {
	if err := t.meet(); err != nil {
		return err
	}
	begin := time.Now()
	e, err := t.eval.run()
	if err != nil || e == nil { // nil: a signal came
		return err
	}
	t.eval.done = t.step
	t.watch.Trace.Add(trace.LaneLoop, "evaluate", "", begin, time.Since(begin))
	t.rep.Eval(t.step, e)
	return nil
}

// stopper turns signals into a step at which all ranks stop.
type stopper struct {
	got      atomic.Int32 // number of the first signal; 0 for none
	graceful atomic.Bool  // a signal ends the training after its step, which is saved; otherwise it ends the process at once
	word     [4]byte      // that ranks agree by
}

var stopSite = comm.Site{Tensor: "stop", Collective: "agreement to go on"}

// watch listens to signals until the returned function is called. A second signal, not just the launcher's echo of the
// first, ends the process at once too.
func (s *stopper) watch(signals <-chan os.Signal) (end func()) {
	done := make(chan struct{})
	go func() {
		var first time.Time
		for {
			select {
			case <-done:
				return
			case sig := <-signals:
				n, ok := sig.(syscall.Signal)
				if !ok {
					continue
				}
				again := !s.got.CompareAndSwap(0, int32(n))
				if !s.graceful.Load() || again && time.Since(first) > time.Second {
					os.Exit(ranks.ExitSignal + int(n))
				}
				if !again {
					first = time.Now()
				}
			}
		}
	}()
	return func() { close(done) }
}

// agreed is the signal that some rank got, the same on every rank.
func (s *stopper) agreed(world comm.Communicator) (int, error) {
	n := s.got.Load()
	if world == nil {
		return int(n), nil
	}
	binary.LittleEndian.PutUint32(s.word[:], uint32(n))
	if err := world.AllReduce(&stopSite, s.word[:], comm.I32, comm.Max); err != nil {
		return 0, err
	}
	return int(binary.LittleEndian.Uint32(s.word[:])), nil
}
