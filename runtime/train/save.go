package train

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/trace"
)

// accumulator begins the names of state that only lives within a step, summing micro-batches: it is zeros between
// steps, so it is not saved.
const accumulator = "accum/"

// saved reports whether a tensor is part of a checkpoint.
func saved(t *abi.Tensor) bool {
	switch t.Role {
	case "param", "buffer":
		return true
	case "state":
		return !strings.HasPrefix(t.Name, accumulator)
	}
	return false
}

// checkpointDir is where checkpoints go; "" for nowhere.
func (s *session) checkpointDir() string {
	if s.cfg.ckptDir == "auto" {
		return filepath.Join(s.cfg.dir, "checkpoints")
	}
	return s.cfg.ckptDir
}

// writable makes sure, before any training, that checkpoints can be saved.
func (t *trainer) writable() error {
	dir := t.checkpointDir()
	if dir == "" || t.plan.rank != 0 {
		return nil
	}
	err := os.MkdirAll(dir, 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".probe-*"); err == nil {
			err = errors.Join(f.Close(), os.Remove(f.Name()))
		}
	}
	if err != nil {
		return usagef("checkpoints cannot be saved (--checkpoint-dir): %w", err)
	}
	return nil
}

// save writes a checkpoint, all ranks together. A rank writes the parts that it is the first to hold.
func (t *trainer) save() error {
	dir := t.checkpointDir()
	if dir == "" {
		return nil
	}
	begin := time.Now()
	if err := t.write(dir); err != nil {
		return err
	}
	t.saved = t.step
	t.watch.trace.Add(trace.LaneLoop, "save", "", begin, time.Since(begin))
	t.rep.save(t.step, dir, time.Since(begin))
	return nil
}

func (t *trainer) write(dir string) error {
	opt := ckpt.Options{Keep: t.cfg.keep, Log: t.rep.note}
	var w *ckpt.Writer
	err := t.sound()
	if t.plan.rank == 0 && err == nil { // first, because it removes what killed saves left
		w, err = ckpt.Begin(dir, t.step, 0, t.plan.Ranks, opt)
	}
	if err := t.allOK("making a checkpoint", err); err != nil {
		return err
	}
	if t.plan.rank != 0 {
		w, err = ckpt.Begin(dir, t.step, t.plan.rank, t.plan.Ranks, opt)
	}
	for i := range t.plan.prog.Tensors {
		x := &t.plan.prog.Tensors[i]
		if err == nil && saved(x) && t.plan.owner(x) {
			err = w.Add(x.Name, x.DType, t.plan.whole(x), t.plan.start(x, t.plan.rank, 0), x.Dims, t.m.bytes(x))
		}
	}
	info, err := t.closeShard(w, err)
	var lost *comm.Error
	if errors.As(err, &lost) {
		return err
	}
	info.Rank = t.plan.rank
	if err != nil {
		info.Err = err.Error()
	}
	infos, err := t.gatherInfos(info)
	if err != nil {
		return err
	}
	if t.plan.rank == 0 {
		if w == nil {
			return errors.New(info.Err)
		}
		err = w.Commit(infos, t.meta())
	}
	return t.allOK("making a checkpoint", err)
}

// closeShard writes this rank's shard, unless an error came before, while the ranks hear of each other.
func (s *session) closeShard(w *ckpt.Writer, err error) (ckpt.ShardInfo, error) {
	var info ckpt.ShardInfo
	done := make(chan error, 1)
	if err != nil {
		done <- err
	} else {
		go func() {
			var err error
			info, err = w.CloseShard()
			done <- err
		}()
	}
	lost := s.heartbeat(func(tick <-chan time.Time) bool {
		select {
		case err = <-done:
			return true
		case <-tick:
			return false
		}
	})
	if lost != nil {
		return ckpt.ShardInfo{}, lost
	}
	return info, err
}

// heartbeat lets ranks that are ready wait for slow ones without taking them for dead: about once a second all say
// whether they are ready. ready waits for its part to be over, or for the tick.
func (s *session) heartbeat(ready func(tick <-chan time.Time) bool) error {
	for done := false; ; {
		if !done {
			done = ready(time.After(time.Second))
		}
		all, err := s.all(done)
		if all || err != nil {
			return err
		}
	}
}

var agreeSite = comm.Site{Tensor: "checkpoint", Collective: "agreement on a checkpoint"}

// all reports whether ok holds on every rank.
func (s *session) all(ok bool) (bool, error) {
	if s.world == nil {
		return ok, nil
	}
	word := make([]byte, 4)
	if ok {
		word[0] = 1
	}
	err := s.world.AllReduce(&agreeSite, word, comm.I32, comm.Min)
	return word[0] == 1, err
}

// allOK makes an error of one rank one of all. The others' names it only in general: the rank itself says more.
func (s *session) allOK(doing string, err error) error {
	all, e := s.all(err == nil)
	if !all && e == nil && s.world != nil {
		first := make([]byte, 4)
		if err != nil {
			first[0] = 1
		}
		e = s.world.Broadcast(&agreeSite, first, comm.I32, 0)
		if first[0] == 0 && err != nil {
			err = &alone{err} // rank 0 is well, so it does not tell
		}
	}
	switch {
	case err != nil:
		return err
	case e != nil:
		return e
	case !all:
		return &elsewhere{doing}
	}
	return nil
}

// gatherInfos brings every rank's shard information to all.
func (s *session) gatherInfos(info ckpt.ShardInfo) ([]ckpt.ShardInfo, error) {
	if s.world == nil {
		return []ckpt.ShardInfo{info}, nil
	}
	mine, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	parts, err := s.gather(mine)
	if err != nil {
		return nil, err
	}
	infos := make([]ckpt.ShardInfo, len(parts))
	for i, p := range parts {
		if err := json.Unmarshal(p, &infos[i]); err != nil {
			return nil, fmt.Errorf("BUG: what rank %d says of its shard: %w", i, err)
		}
	}
	return infos, nil
}

// gather gives every rank the bytes of every rank, of whatever lengths.
func (s *session) gather(mine []byte) ([][]byte, error) {
	n := s.world.Size()
	sizes, size := make([]byte, 8*n), make([]byte, 8)
	binary.LittleEndian.PutUint64(size, uint64(len(mine)))
	if err := s.world.AllGather(&agreeSite, sizes, size, comm.I64); err != nil {
		return nil, err
	}
	most := 0
	for r := range n {
		most = max(most, int(binary.LittleEndian.Uint64(sizes[8*r:])))
	}
	padded, all := make([]byte, most), make([]byte, most*n)
	copy(padded, mine)
	if most > 0 {
		if err := s.world.AllGather(&agreeSite, all, padded, comm.U8); err != nil {
			return nil, err
		}
	}
	parts := make([][]byte, n)
	for r := range n {
		parts[r] = all[r*most:][:binary.LittleEndian.Uint64(sizes[8*r:])]
	}
	return parts, nil
}

// Keys of Meta.User.
const (
	metaModel   = "model_sha256"
	metaOptions = "options"
	metaGtc     = "gtc"
	metaOrder   = "order"
)

// meta is what a resumed run must know.
func (t *trainer) meta() ckpt.Meta {
	options, _ := json.Marshal(t.plan.Options) // a map of strings always encodes
	return ckpt.Meta{
		Seed:      t.cfg.seed,
		Optimizer: ckpt.Optimizer{Name: t.plan.Train.Optimizer, Hyper: map[string]float64{"lr": t.plan.Train.LR}},
		Data:      ckpt.DataState{Seed: t.cfg.seed, NextStep: t.step, Batch: t.plan.Train.Batch, Samples: t.sampler.Samples},
		User: map[string]string{metaModel: t.plan.ModelSum, metaOptions: string(options), metaGtc: t.plan.Gtc,
			metaOrder: t.order()},
	}
}

// order is what, beside the seed, the order of the samples depends on.
func (t *trainer) order() string {
	return fmt.Sprintf("shuffle=%v random=%v drop-last=%v", t.sampler.Shuffle, t.sampler.Random, t.sampler.DropLast)
}

// resume loads the checkpoint that --resume names, if there is one. t is nil when only the parameters matter.
func (s *session) resume(t *trainer) error {
	if s.cfg.resume == "" {
		return nil
	}
	err := s.load(t)
	if s.world == nil {
		return err
	}
	if err := s.allOK("resuming", err); err != nil {
		return err
	}
	steps, err := s.gather(strconv.AppendInt(nil, s.step, 10))
	if err != nil {
		return err
	}
	for r, step := range steps {
		if string(step) != string(steps[0]) {
			return usagef("--resume: rank 0 found step %s, rank %d step %s: all ranks must see the same checkpoints", steps[0], r, step)
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
			return usagef("--resume needs a --checkpoint-dir, or a path: --resume=PATH")
		}
	}
	if _, err := os.Stat(dir); s.cfg.resume == "auto" && errors.Is(err, os.ErrNotExist) {
		s.rep.note("no checkpoint in %s: starting from the initial weights", dir)
		return nil
	}
	c, err := ckpt.Open(dir)
	if errors.Is(err, ckpt.ErrNone) && s.cfg.resume == "auto" {
		s.rep.note("no checkpoint in %s: starting from the initial weights", dir)
		return nil
	}
	if err != nil {
		return usagef("--resume: %w", err)
	}
	defer c.Close()
	if err := s.restore(c, t); err != nil {
		return usagef("--resume: %s: %w", c.Dir(), err)
	}
	s.step = c.Index().Step
	s.rep.note("resumed from %s, step %d", c.Dir(), s.step)
	return nil
}

// restore reads this rank's parts.
func (s *session) restore(c *ckpt.Checkpoint, t *trainer) error {
	if t != nil {
		if err := t.compatible(&c.Index().Meta); err != nil {
			return err
		}
	}
	for i := range s.plan.prog.Tensors {
		x := &s.plan.prog.Tensors[i]
		if !saved(x) || t == nil && x.Role == "state" {
			continue
		}
		have, err := c.Tensor(x.Name)
		if err != nil {
			return fmt.Errorf("it was made by another model or optimizer%s: %w", s.otherModel(c), err)
		}
		if have.DType != x.DType || !slices.Equal(have.Shape, s.plan.whole(x)) {
			return fmt.Errorf("%q is %s%v there, this program has %s%v%s", x.Name, have.DType, have.Shape, x.DType, s.plan.whole(x), s.otherModel(c))
		}
		if err := c.Read(x.Name, s.plan.start(x, s.plan.rank, 0), x.Dims, s.m.bytes(x)); err != nil {
			return err
		}
	}
	return nil
}

// otherModel tells, in parentheses, that a checkpoint is not of this program's ONNX file; "" when it is.
func (s *session) otherModel(c *ckpt.Checkpoint) string {
	sum := c.Index().Meta.User[metaModel]
	if sum == "" || sum == s.plan.ModelSum {
		return ""
	}
	return fmt.Sprintf(" (made from the ONNX file of sha256 %.12s, this program from %s, %.12s)", sum, s.plan.Model, s.plan.ModelSum)
}

// earlier notes that a run that starts anew saves beside, or over, the checkpoints of another.
func (t *trainer) earlier() {
	dir := t.checkpointDir()
	if dir == "" || t.cfg.resume != "" || t.plan.rank != 0 {
		return
	}
	if steps, err := ckpt.Steps(dir); err == nil && len(steps) > 0 {
		t.rep.note("%s has checkpoints of an earlier run (newest: step %d); this run starts anew and saves there too: --resume goes on from them",
			dir, slices.Max(steps))
	}
}

// compatible makes sure that going on repeats and skips no sample, and notes what else differs.
func (t *trainer) compatible(m *ckpt.Meta) error {
	if !t.cfg.seedGiven {
		t.cfg.seed = m.Data.Seed
	}
	sampler := t.set.Sampler(t.plan.Train.Batch, t.cfg.seed, t.cfg.random)
	switch {
	case m.Optimizer.Name != t.plan.Train.Optimizer:
		return fmt.Errorf("its optimizer state is of %s, this program uses %s", m.Optimizer.Name, t.plan.Train.Optimizer)
	case m.Data.Batch != t.plan.Train.Batch:
		return fmt.Errorf("it was trained in batches of %d, this program takes %d: its place in the data would be lost", m.Data.Batch, t.plan.Train.Batch)
	case m.Data.Seed != t.cfg.seed:
		return fmt.Errorf("it was trained with --seed %d, not %d", m.Data.Seed, t.cfg.seed)
	case m.Data.Samples != sampler.Samples:
		return fmt.Errorf("it was trained on %d samples, --data has %d (with the same --window and --tokens?)", m.Data.Samples, sampler.Samples)
	}
	if sum := m.User[metaModel]; sum != t.plan.ModelSum {
		t.rep.note("the checkpoint was made from another ONNX file (sha256 %.12s, now %.12s): going on where its parameters fit", sum, t.plan.ModelSum)
	}
	old := map[string]string{}
	if json.Unmarshal([]byte(m.User[metaOptions]), &old) != nil {
		return nil
	}
	all := maps.Clone(old)
	maps.Copy(all, t.plan.Options)
	for _, k := range slices.Sorted(maps.Keys(all)) {
		was, is := old[k], t.plan.Options[k]
		if k == "lr" { // not recorded when it was left to its default
			was, is = rateOf(was, m.Optimizer.Hyper["lr"]), rateOf(is, t.plan.Train.LR)
		}
		if was != is && !layout[k] {
			t.rep.note("the checkpoint was made with --%s %s, this program with %s", k, or(was, "left to its default"), or(is, "the default"))
		}
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

// layout are the options that change where things are, not what they are.
var layout = map[string]bool{"dp": true, "microbatches": true, "out": true, "o": true, "bucket": true, "bucket-bytes": true, "threads": true}
