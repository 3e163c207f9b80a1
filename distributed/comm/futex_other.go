//go:build !linux

package comm

import (
	"sync/atomic"
	"time"
)

// futexWait sleeps a little where the system has no futex: long enough to
// leave the core to others, short beside a collective.
func futexWait(x *atomic.Uint32, v uint32, most time.Duration) {
	for pause := 20 * time.Microsecond; pause < most && x.Load() == v; pause *= 2 {
		time.Sleep(pause)
	}
}

func futexWake(*atomic.Uint32) {}
