package driver

import (
	"fmt"
	"slices"
	"unsafe"
)

// Codes of CUresult that gtc tells apart.
const (
	outOfMemory = 2
	noDevice    = 100
	notReady    = 600
)

// lost are the codes after which nothing more can be done on a device in this process, and what they mean.
var lost = map[int32]string{
	46: "the device is in use or unavailable", 101: "there is no such device", 201: "the context is gone", 214: "an uncorrectable memory error (ECC)",
	220: "an NVLink error", 226: "NVLink does not answer", 700: "a kernel read or wrote outside of its memory", 702: "a kernel took too long",
	709: "the context was destroyed", 710: "an assertion in a kernel failed", 714: "a hardware stack error", 715: "an illegal instruction",
	716: "a misaligned address", 717: "an address of another address space", 718: "an invalid program counter", 719: "a kernel failed",
	721: "a tensor memory leak", 802: "the system is not ready for CUDA", 999: "an unknown error, often of the hardware: see the kernel log (dmesg) for an Xid",
}

// Error is a function of the driver that failed. Errors of kernels come with any later call.
type Error struct {
	Func Func
	Code int32
	Name string // such as CUDA_ERROR_ILLEGAL_ADDRESS
	Text string // the driver's own explanation
}

// Error says what failed and why.
func (e *Error) Error() string {
	why := e.Text
	if text, ok := lost[e.Code]; ok {
		why = text
	}
	if why == "" {
		return fmt.Sprintf("%s: %s", e.Func, e.Name)
	}
	return fmt.Sprintf("%s: %s (%s)", e.Func, why, e.Name)
}

// Lost reports whether the device can no longer be used by this process.
func (e *Error) Lost() bool { _, ok := lost[e.Code]; return ok }

// OutOfMemory reports whether memory was short.
func (e *Error) OutOfMemory() bool { return e.Code == outOfMemory }

// NotReady reports that what was asked about is not over, which is no failure.
func (e *Error) NotReady() bool { return e.Code == notReady }

// pending is the answer of a query that is not over: made once, because queries are made often.
var pending = [...]*Error{{Func: StreamQuery, Code: notReady, Name: "CUDA_ERROR_NOT_READY"}, {Func: EventQuery, Code: notReady, Name: "CUDA_ERROR_NOT_READY"}}

func (d *Driver) failure(f Func, code int32) error {
	if code == notReady {
		if i := slices.IndexFunc(pending[:], func(e *Error) bool { return e.Func == f }); i >= 0 {
			return pending[i]
		}
	}
	e := &Error{Func: f, Code: code, Name: d.text(GetErrorName, code), Text: d.text(GetErrorString, code)}
	if e.Name == "" {
		e.Name = fmt.Sprintf("error %d", code)
	}
	return e
}

// text asks the driver about a code.
func (d *Driver) text(f Func, code int32) string {
	var p *byte
	if d.at[f] == 0 || d.Call(f, uintptr(code), uintptr(unsafe.Pointer(&p))) != nil {
		return ""
	}
	return cString(p)
}

// cString is the text of a C string.
func cString(p *byte) string {
	if p == nil {
		return ""
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
