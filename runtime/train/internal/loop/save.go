package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/ckpt"
	"github.com/gtc-compiler/gtc/runtime/internal/trace"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

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
	if dir == "" || t.Plan.Rank != 0 {
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
		return ranks.Usagef("checkpoints cannot be saved (--checkpoint-dir): %w", err)
	}
	return t.lock(dir)
}

// save writes a checkpoint, all ranks together. A rank writes the parts that it is the first to hold.
func (t *trainer) save() error {
	dir := t.checkpointDir()
	if dir == "" {
		return nil
	}
	if err := t.meet(); err != nil {
		return err
	}
	begin := time.Now()
	if err := t.write(dir); err != nil {
		return err
	}
	t.saved = t.step
	t.watch.Trace.Add(trace.LaneLoop, "save", "", begin, time.Since(begin))
	t.rep.Save(t.step, dir, time.Since(begin))
	return nil
}

func (t *trainer) write(dir string) error {
	opt := ckpt.Options{Keep: t.cfg.keep, Log: t.rep.Note}
	var w *ckpt.Writer
	err := t.sound()
	if t.Plan.Rank == 0 && err == nil { // first, because it removes what killed saves left
		w, err = ckpt.Begin(dir, t.step, 0, t.Plan.Ranks, opt)
	}
	if err := t.AllOK("making a checkpoint", err); err != nil {
		return err
	}
	if t.Plan.Rank != 0 {
		w, err = ckpt.Begin(dir, t.step, t.Plan.Rank, t.Plan.Ranks, opt)
	}
	for i := range t.Plan.Prog.Tensors {
		x := &t.Plan.Prog.Tensors[i]
		if err == nil && program.Saved(x) && t.Plan.Owner(x) {
			var contents []byte
			if contents, err = t.m.Contents(x); err != nil {
				break
			}
			_, k := t.Plan.Entries(x)
			for _, p := range t.Plan.Pieces(x) {
				err = errors.Join(err, w.Add(x.Name, x.DType, t.Plan.Kept(x), program.Entry(x, k, p.Offset), program.Entry(x, 1, p.Shape), p.Take(x, contents)))
			}
		}
	}
	info, err := t.closeShard(w, err)
	var lost *comm.Error
	if errors.As(err, &lost) {
		return err
	}
	info.Rank = t.Plan.Rank
	if err != nil {
		info.Err = err.Error()
	}
	infos, err := t.gatherInfos(info)
	if err != nil {
		return err
	}
	if t.Plan.Rank == 0 {
		if w == nil {
			return errors.New(info.Err)
		}
		err = w.Commit(infos, t.meta())
	}
	return t.AllOK("making a checkpoint", err)
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
	lost := s.Heartbeat(func(tick <-chan time.Time) bool {
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

// gatherInfos brings every rank's shard information to all.
func (s *session) gatherInfos(info ckpt.ShardInfo) ([]ckpt.ShardInfo, error) {
	if s.World == nil {
		return []ckpt.ShardInfo{info}, nil
	}
	mine, err := json.Marshal(info)
	if err != nil {
		return nil, err
	}
	parts, err := s.Gather(mine)
	if err != nil {
		return nil, err
	}
	infos := make([]ckpt.ShardInfo, len(parts))
	for i, p := range parts {
		if err := json.Unmarshal(p, &infos[i]); err != nil {
			return nil, fmt.Errorf("BUG: the message of rank %d about its shard: %w", i, err)
		}
	}
	return infos, nil
}

// Keys of Meta.User.
const (
	metaModel   = "model_sha256"
	metaOptions = "options"
	metaGtc     = "gtc"
	metaOrder   = "order"
	metaOrigin  = "data_origin" // step at which the data began, when not 0
)

// meta is what a resumed run must know.
func (t *trainer) meta() ckpt.Meta {
	options, _ := json.Marshal(t.Plan.Options) // a map of strings always encodes
	user := map[string]string{metaModel: t.Plan.ModelSum, metaOptions: string(options), metaGtc: t.Plan.Gtc, metaOrder: t.order()}
	if t.origin > 0 {
		user[metaOrigin] = strconv.FormatInt(t.origin, 10)
	}
	return ckpt.Meta{
		Seed:      t.cfg.seed,
		Optimizer: ckpt.Optimizer{Name: t.Plan.Train.Optimizer, Hyper: map[string]float64{"lr": t.Plan.Train.LR}},
		Data:      ckpt.DataState{Seed: t.cfg.seed, NextStep: t.step, Batch: t.Plan.Train.Batch, Samples: t.sampler.Samples},
		User:      user,
	}
}

// order is what, beside the seed, the order of the samples depends on.
func (t *trainer) order() string {
	return fmt.Sprintf("shuffle=%v random=%v drop-last=%v", t.sampler.Shuffle, t.sampler.Random, t.sampler.DropLast)
}
