package comm

import (
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

const (
	futexOpWait = 0 // FUTEX_WAIT, not PRIVATE: the word may be in shared memory
	futexOpWake = 1
)

// futexSlice is read only by the kernel; being global it costs no allocation.
var futexSlice = syscall.NsecToTimespec(int64(sleepSlice))

// futexWait sleeps while *x == v, for about sleepSlice at most. It may return early.
func futexWait(x *atomic.Uint32, v uint32, _ time.Duration) {
	syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(x)), futexOpWait,
		uintptr(v), uintptr(unsafe.Pointer(&futexSlice)), 0, 0)
}

// futexWake wakes all that sleep on x.
func futexWake(x *atomic.Uint32) {
	syscall.Syscall6(syscall.SYS_FUTEX, uintptr(unsafe.Pointer(x)), futexOpWake, 1<<30, 0, 0, 0)
}
