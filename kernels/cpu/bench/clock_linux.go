package main

import (
	"syscall"
	"time"
	"unsafe"
)

// processor is the time that the calling thread has run.
func processor() time.Duration {
	var t syscall.Timespec
	const thread = 3 // CLOCK_THREAD_CPUTIME_ID
	if _, _, e := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, thread, uintptr(unsafe.Pointer(&t)), 0); e != 0 {
		return wall()
	}
	return time.Duration(t.Nano())
}
