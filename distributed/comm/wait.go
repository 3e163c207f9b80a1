package comm

import (
	"runtime"
	"time"
)

// Waiting goes through three stages: a short spin, since ranks that do the
// same work arrive within microseconds of each other; some yields, for ranks
// that are goroutines of one process; then sleep in the kernel, since another
// rank may need this very core.
const (
	spinLoads  = 1500 // about 2 us
	yieldTimes = 20
	// sleepSlice is how long a sleep goes without looking for a failure.
	sleepSlice = 10 * time.Millisecond
)

// await waits until x reaches target, which rank peer (of the job) brings
// about. c is what to report.
func (w *world) await(x *word, target uint32, peer int, c *call) *failure {
	if x.reached(target) {
		return nil
	}
	if spins {
		for range spinLoads {
			if x.reached(target) {
				return nil
			}
		}
	}
	for range yieldTimes {
		runtime.Gosched()
		if x.reached(target) {
			return nil
		}
	}
	w.setWait(peer, c)
	f := w.sleep(x, target, peer)
	w.setWait(-1, nil)
	return f
}

// spins is false where waiting ranks would keep the others from the only core.
var spins = runtime.NumCPU() > 1

func (w *world) sleep(x *word, target uint32, peer int) *failure {
	k := clock{last: time.Now()}
	for {
		v := x.v.Load()
		if int32(v-target) >= 0 {
			return nil
		}
		if f := w.failed.Load(); f != nil {
			return f
		}
		if w.left[peer].Load() && !x.reached(target) {
			return w.leftFailure(peer)
		}
		x.waiters.Add(1)
		futexWait(&x.v, v, sleepSlice)
		x.waiters.Add(^uint32(0))
		if waited := k.tick(10 * sleepSlice); waited > w.opt.Timeout && !x.reached(target) {
			return w.hungFailure(peer, waited)
		}
	}
}
