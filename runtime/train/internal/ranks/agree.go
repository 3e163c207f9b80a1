package ranks

import (
	"encoding/binary"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

var agreeSite = comm.Site{Tensor: "checkpoint", Collective: "agreement on a checkpoint"}

// all reports whether ok holds on every rank.
func (j *Job) all(ok bool) (bool, error) {
	if j.World == nil {
		return ok, nil
	}
	word := make([]byte, 4)
	if ok {
		word[0] = 1
	}
	err := j.World.AllReduce(&agreeSite, word, comm.I32, comm.Min)
	return word[0] == 1, err
}

// AllOK makes an error of one rank one of all. The others' names it only in general: the rank itself says more.
func (j *Job) AllOK(doing string, err error) error {
	all, e := j.all(err == nil)
	if !all && e == nil && j.World != nil {
		first := make([]byte, 4)
		if err != nil {
			first[0] = 1
		}
		e = j.World.Broadcast(&agreeSite, first, comm.I32, 0)
		if first[0] == 0 && err != nil {
			err = Alone(err) // rank 0 is well, so it does not tell
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

// Heartbeat lets ranks that are ready wait for slow ones without taking them for dead: about once a second all say
// whether they are ready. ready waits for its part to be over, or for the tick.
func (j *Job) Heartbeat(ready func(tick <-chan time.Time) bool) error {
	for done := false; ; {
		if !done {
			done = ready(time.After(time.Second))
		}
		all, err := j.all(done)
		if all || err != nil {
			return err
		}
	}
}

// Gather gives every rank the bytes of every rank, of whatever lengths.
func (j *Job) Gather(mine []byte) ([][]byte, error) {
	n := j.World.Size()
	sizes, size := make([]byte, 8*n), make([]byte, 8)
	binary.LittleEndian.PutUint64(size, uint64(len(mine)))
	if err := j.World.AllGather(&agreeSite, sizes, size, comm.I64); err != nil {
		return nil, err
	}
	most := 0
	for r := range n {
		most = max(most, int(binary.LittleEndian.Uint64(sizes[8*r:])))
	}
	padded, all := make([]byte, most), make([]byte, most*n)
	copy(padded, mine)
	if most > 0 {
		if err := j.World.AllGather(&agreeSite, all, padded, comm.U8); err != nil {
			return nil, err
		}
	}
	parts := make([][]byte, n)
	for r := range n {
		parts[r] = all[r*most:][:binary.LittleEndian.Uint64(sizes[8*r:])]
	}
	return parts, nil
}
