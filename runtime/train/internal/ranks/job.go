// Package ranks is the other ranks of a job, as one of them sees them: which one it is, how it joins them, what they agree on, by what
// they talk, and whose failure ended the run.
package ranks

import (
	"cmp"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/distributed/comm"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// Job is the ranks that train together, as one of them sees it.
type Job struct {
	Plan      *program.Plan
	World     comm.Communicator // all ranks of the job; nil when there is one
	Number    int               // of this rank among those of its host, by which it picks a device
	transport string            // --comm or GTC_COMM: auto, local, nccl, …
	patience  time.Duration     // longest wait for a rank that makes no progress; 0 for any

	Wrap  func(comm.Communicator) comm.Communicator // puts something round communicators of axes and pairs, such as a trace; nil for nothing
	Err   io.Writer                                 // gets notes, such as why a library is not used
	Debug bool                                      // notes how long joining took
}

// Joining is how a rank joins its job.
type Joining struct {
	Device  bool          // the program names a device, on whose memory libraries may work
	Agreed  string        // flags that must be the same on all ranks
	Dir     string        // the compiled folder
	Timeout time.Duration // --timeout; 0 for what the environment says
	Getenv  func(string) string
	Connect func(comm.Options) (comm.Communicator, error)
}

// Join makes world; a job of one rank opens nothing. It returns how many ranks share this host, as far as is
// known.
func (j *Job) Join(o *Joining) (local int, err error) {
	x := j.Plan
	opt, err := comm.FromEnv()
	if err != nil {
		return 0, Usage(err)
	}
	if x.Ranks == 1 {
		if opt.World > 1 {
			return 0, Usagef("this program was compiled for one rank, but the launcher started %d: compile with --dp %d", opt.World, opt.World)
		}
		return 1, nil
	}
	j.Number, j.transport, j.patience = opt.LocalRank, opt.Transport, opt.Timeout
	if j.transport == "" || j.transport == comm.TransportAuto {
		j.transport = cmp.Or(x.Options["comm"], comm.TransportAuto)
	}
	if _, err := comm.OnDevices(j.transport); o.Device && err == nil { // for what works on the device; the rest is small
		opt.Transport = comm.TransportAuto
	}
	byHand := opt.World <= 1 && o.Getenv("RANK") == "" // one process for each rank, not torchrun's only one
	if byHand {
		opt.World, opt.Rank, opt.LocalRank, j.Number = x.Ranks, x.Rank, x.Rank, x.Rank
		if opt.Port == 0 {
			opt.Port = o.port()
		}
	}
	if opt.World != x.Ranks {
		return 0, Usagef("this program was compiled for %d ranks, but the launcher started %d (WORLD_SIZE)", x.Ranks, opt.World)
	}
	if opt.Rank != x.Rank {
		return 0, Alone(Usagef("this is the program of rank %d, but the launcher says that it is rank %d", x.Rank, opt.Rank))
	}
	if o.Timeout > 0 {
		opt.Timeout = o.Timeout
		if byHand || opt.Timeout > time.Minute { // a launcher may take its time to start all ranks
			opt.ConnectTimeout = opt.Timeout
		}
	}
	h := fnv.New64a()
	fmt.Fprint(h, x.Prog.Hash, o.Agreed)
	opt.Plan = fmt.Sprintf("%016x", h.Sum64())
	if j.World, err = o.Connect(opt); err != nil {
		if inner := errors.Unwrap(err); inner != nil && strings.HasPrefix(err.Error(), fmt.Sprintf("rank %d of %d: ", opt.Rank, opt.World)) {
			err = inner // the rank is told anyhow
		}
		if byHand {
			err = fmt.Errorf("%w\n  this program is one of %d ranks: \"gtc run %s\" starts them all; by hand, start bin/rank-0 to bin/rank-%d together with the same flags",
				err, x.Ranks, o.Dir, x.Ranks-1)
		}
		return 0, err
	}
	local = x.Ranks
	if n, err := strconv.Atoi(o.Getenv("LOCAL_WORLD_SIZE")); err == nil && n > 0 {
		local = n
	}
	return local, nil
}

// port is the same for all ranks of one compiled folder, so that bin/rank-0 and bin/rank-1 find each other.
func (o *Joining) port() int {
	if n, err := strconv.Atoi(o.Getenv("MASTER_PORT")); err == nil && n > 0 {
		return n
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		dir = o.Dir
	}
	h := fnv.New32a()
	io.WriteString(h, dir)
	return 20000 + int(h.Sum32()%10000)
}
