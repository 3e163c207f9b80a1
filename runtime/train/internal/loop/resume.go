package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/schedule"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/printable"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// resume loads the checkpoint that --resume names, if there is one. t is nil when only the parameters matter.
func (s *session) resume(t *trainer) error {
	if s.cfg.resume == "" {
		return nil
	}
	err := s.load(t)
	if s.World == nil {
		return err
	}
	if err := s.AllOK("resuming", err); err != nil {
		return err
	}
	steps, err := s.Gather(strconv.AppendInt(nil, s.step, 10))
	if err != nil {
		return err
	}
	for r, step := range steps {
		if string(step) != string(steps[0]) {
			return ranks.Usagef("--resume: rank 0 found step %s, but rank %d step %s: all ranks must see the same checkpoints", steps[0], r, step)
		}
	}
	return nil
}

// load is resume on this rank.
func (s *session) load(t *trainer) error {
	dir := s.cfg.resume
	switch dir {
	case "auto":
		if dir = s.checkpointDir(); dir == "" {
			return ranks.Usagef("--resume needs a --checkpoint-dir, or a path: --resume=PATH")
		}
	}
	initial := func() error {
		if s.cfg.initFrom != "" {
			s.rep.Note("no checkpoint in %s yet", dir)
			return nil
		}
		if s.absent != nil {
			return s.weightless(s.absent)
		}
		s.rep.Note("no checkpoint in %s: starting from the initial weights", dir)
		return nil
	}
	if _, err := os.Stat(dir); s.cfg.resume == "auto" && errors.Is(err, os.ErrNotExist) {
		return initial()
	}
	c, err := ckpt.Open(dir)
	if errors.Is(err, ckpt.ErrNone) && s.cfg.resume == "auto" {
		return initial()
	}
	if err != nil {
		return ranks.Usagef("--resume: %w", err)
	}
	defer c.Close()
	if err := s.restore(c, t); err != nil {
		return ranks.Usagef("--resume: %s: %w", c.Dir(), err)
	}
	s.step, s.resumed = c.Index().Step, true
	s.rep.Note("resumed from %s, step %d", c.Dir(), s.step)
	return nil
}

// restore reads this rank's parts.
func (s *session) restore(c *ckpt.Checkpoint, t *trainer) error {
	if t != nil {
		if err := t.compatible(c.Index().Step, &c.Index().Meta); err != nil {
			return err
		}
	}
	told := map[string]bool{}
	for i := range s.Plan.Prog.Tensors {
		x := &s.Plan.Prog.Tensors[i]
		if !program.Saved(x) || t == nil && x.Role == abi.RoleState {
			continue
		}
		have, err := c.Tensor(x.Name)
		if err != nil {
			if note, ok := mayLack(x); ok {
				told[note] = true
				continue
			}
			return fmt.Errorf("it was made by another model or optimizer%s: %w", s.otherModel(c), err)
		}
		if have.DType == x.DType && slices.Equal(have.Shape, s.Plan.Kept(x)) {
			_, k := s.Plan.Entries(x)
			err := s.m.Fill(x, func(b []byte) error { return s.readEntry(c, x, k, len(x.PerRank) > 0, b) })
			if err != nil {
				return err
			}
			continue
		}
		done, note, err := s.readPerRank(c, x, have)
		if err != nil {
			return err
		}
		if !done {
			return fmt.Errorf("%q is %s%v there, but %s%v in this program%s", x.Name, have.DType, have.Shape, x.DType, s.Plan.Kept(x), s.otherModel(c))
		}
		told["what each rank had for itself ("+kindOf(x.Name)+"): its values "+note] = true
	}
	if t != nil {
		if text := dropped(s.Plan, c.Names()); text != "" {
			told[text] = true
		}
	}
	delete(told, "")
	for _, text := range slices.Sorted(maps.Keys(told)) {
		s.rep.Note("%s", text)
	}
	return nil
}

// dropped says which state in a checkpoint of tensors names has no place in this job; "" when all has.
func dropped(x *program.Plan, names []string) string {
	kept := map[string]bool{}
	for _, p := range x.StagePrograms() {
		for i := range p.Tensors {
			kept[p.Tensors[i].Name] = true
		}
	}
	lost := map[string]int{}
	for _, name := range names {
		if abi.OptimState.Has(name) && !kept[name] {
			lost[kindOf(name)]++
		}
	}
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(lost)) {
		list = append(list, fmt.Sprintf("%d of %s", lost[kind], kind))
	}
	if list == nil {
		return ""
	}
	text := "state of the checkpoint that this program does not keep is dropped: " + strings.Join(list, ", ")
	if lost[abi.OptimState.Of(abi.KindError)] > 0 {
		text += " (what gradient compression had yet to send)"
	}
	return text
}

// mayLack reports whether a checkpoint may be without x, and what is told then. It is never a tensor of the model, whatever its name.
func mayLack(x *abi.Tensor) (note string, ok bool) {
	switch {
	case x.Role != abi.RoleState:
		return "", false
	case anew(x):
		return "state of gradient compression is not in the checkpoint: it starts anew", true
	case x.Name == abi.EmptySteps:
		return "a count of empty steps is not in the checkpoint: it starts at 0", true
	case strings.HasPrefix(x.Name, abi.LossScale):
		return "a loss scale is not in the checkpoint: it starts anew", true
	}
	return "", x.Name == abi.NoiseSeed // of an earlier gtc, whose noise was that of seed 0
}

// anew reports whether x may start as zeros: what gradient compression keeps from step to step.
func anew(x *abi.Tensor) bool { return x.Merge == abi.MergeSum || x.Merge == abi.MergeNone }

// kindOf is a state's name without the parameter's: optim/momentum.
func kindOf(name string) string {
	if kind, param, ok := abi.CutOptim(name); ok && param != "" {
		return abi.OptimState.Of(kind)
	}
	return name
}

// otherModel tells, in parentheses, that a checkpoint is not of this program's ONNX file; "" when it is.
func (s *session) otherModel(c *ckpt.Checkpoint) string {
	sum := c.Index().Meta.User[metaModel]
	if sum == "" || sum == s.Plan.ModelSum {
		return ""
	}
	return fmt.Sprintf(" (made from the ONNX file of sha256 %.12s, this program from %s, %.12s)", sum, s.Plan.Model, s.Plan.ModelSum)
}

// earlier notes that a run that starts anew saves beside, or over, the checkpoints of another.
func (t *trainer) earlier() {
	dir := t.checkpointDir()
	if dir == "" || t.cfg.resume != "" || t.Plan.Rank != 0 {
		return
	}
	if steps, err := ckpt.Steps(dir); err == nil && len(steps) > 0 {
		t.rep.Note("%s has checkpoints of an earlier run (newest: step %d); this run starts anew and saves there too: --resume goes on from them",
			dir, slices.Max(steps))
	}
}

// compatible makes sure that going on repeats and skips no sample, and notes what else differs.
func (t *trainer) compatible(step int64, m *ckpt.Meta) error {
	if m.Optimizer.Name != t.Plan.Train.Optimizer {
		return fmt.Errorf("its optimizer state is that of %s, but this program uses %s: --init-from begins anew with its weights alone", m.Optimizer.Name, t.Plan.Train.Optimizer)
	}
	if err := t.place(step, m); err != nil {
		return err
	}
	if sum := m.User[metaModel]; sum != t.Plan.ModelSum {
		t.rep.Note("the checkpoint was made from another ONNX file (sha256 %.12s, now %.12s): going on where its parameters fit", sum, t.Plan.ModelSum)
	}
	old := map[string]string{}
	if json.Unmarshal([]byte(m.User[metaOptions]), &old) != nil {
		return nil
	}
	all := maps.Clone(old)
	maps.Copy(all, t.Plan.Options)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		was, is := old[k], t.Plan.Options[k]
		switch k {
		case "lr": // not recorded when it was left to its default
			was, is = rateOf(was, m.Optimizer.Hyper["lr"]), rateOf(is, t.Plan.Train.LR)
		case "schedule":
			was, is = rateSchedule(was), rateSchedule(is)
		}
		if was != is && !layout[k] {
			t.rep.Note("the checkpoint was made with --%s %s, but this program with %s", k, or(was, "left to its default"), or(is, "the default"))
		}
	}
	return nil
}

// place finds where the data go on: where they were when the checkpoint of step was made, or at their beginning with --reset-data.
func (t *trainer) place(step int64, m *ckpt.Meta) error {
	if t.cfg.resetData {
		if !t.cfg.seedGiven {
			t.cfg.seed = m.Data.Seed
		}
		t.origin = step
		return nil
	}
	if t.cfg.seedGiven && t.cfg.seed != m.Data.Seed {
		t.rep.Note("--seed %d is not used: the checkpoint was trained with --seed %d, which goes on (--reset-data begins the data anew, with another)", t.cfg.seed, m.Data.Seed)
	}
	t.cfg.seed = m.Data.Seed
	t.deal()
	why := ""
	switch order := m.User[metaOrder]; {
	case m.Data.Batch != t.Plan.Train.Batch:
		why = fmt.Sprintf("in batches of %d, but this program takes %d", m.Data.Batch, t.Plan.Train.Batch)
	case m.Data.Samples != t.sampler.Samples:
		why = fmt.Sprintf("on %s, but --data has %d (with the same --window and --tokens?)", printable.Count(m.Data.Samples, "sample"), t.sampler.Samples)
	case order != "" && order != t.order():
		why = fmt.Sprintf("with samples in the order %s, but now it is %s", order, t.order())
	}
	if why != "" {
		return fmt.Errorf("it was trained %s: its place in the data would be lost; --reset-data goes on with its weights, optimizer state and step, and begins the data anew", why)
	}
	if text := m.User[metaOrigin]; text != "" {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > step {
			return fmt.Errorf("its data began at step %q: it is damaged", text)
		}
		t.origin = n
	}
	return nil
}

// rateOf is the learning rate given by an option, or the one that was used without.
func rateOf(option string, used float64) string {
	if option == "" {
		return strconv.FormatFloat(used, 'g', -1, 64)
	}
	if v, err := strconv.ParseFloat(option, 64); err == nil {
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return option
}

// rateSchedule is the part of option schedule that says how the learning rate goes, which is constant when it does not say.
func rateSchedule(option string) string {
	words := strings.Fields(option)
	words = slices.DeleteFunc(words, func(w string) bool { return slices.Contains(schedule.Names(), w) })
	return or(strings.Join(words, " "), "constant")
}

// layout are the options that change where things are, not what they are.
var layout = map[string]bool{"dp": true, "tp": true, "pp": true, "zero": true, "sp": true, "shard": true, "chunks": true, "microbatches": true,
	"out": true, "o": true, "bucket-mb": true, "comm": true, "threads": true, "grad-norm": true, "target": true, "arch": true, "cuda-path": true}

// or is s, or something else where s is empty.
func or(s, otherwise string) string {
	if strings.TrimSpace(s) == "" {
		return otherwise
	}
	return s
}
