package comm

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// A header goes before the data of every call: members compare theirs, so
// that ranks that have come apart stop before they mix their bytes.
//
//	0  u64 number of the call within its group (or within its pair, send/recv)
//	8  u8 Op, u8 dtype, u8 reduction, u8 zero
//	12 u32 root
//	16 u64 bytes of the caller's buffer
//	24 u64 FNV-1a of the tensor's name
//	32 u8 length and text of the tensor's name, cut to 150 bytes
//	.. u8 length and text of its source line, cut to what is left
const (
	headerSize = 256
	headerKey  = 32 // leading bytes that must agree
	maxTensor  = 150
)

// call is one operation in progress: its arguments, checked, and its header.
// Calls are kept by their group and used again, so that none is allocated.
type call struct {
	op       Op
	dt       DType
	red      ReduceOp
	root     int // root of rooted operations; the peer of send and recv
	site     *Site
	dst, src []byte
	seq      uint64
	hdr      [headerSize]byte
}

// bytes is the size that members must agree on: of the buffer for in-place
// operations, else of one rank's block.
func (c *call) bytes() int {
	switch c.op {
	case OpAllGather, OpGather, OpSend:
		return len(c.src)
	}
	return len(c.dst)
}

var noSite = &Site{}

func (c *call) encode() {
	h := c.hdr[:]
	le := binary.LittleEndian
	le.PutUint64(h, c.seq)
	op, root := c.op, c.root
	if op == OpRecv {
		op = OpSend
	}
	if op == OpSend || !op.rooted() {
		root = 0
	}
	h[8], h[9], h[10], h[11] = byte(op), byte(c.dt), byte(c.red), 0
	le.PutUint32(h[12:], uint32(root))
	le.PutUint64(h[16:], uint64(c.bytes()))
	le.PutUint64(h[24:], hashName(c.site.Tensor))
	n := copy(h[33:33+maxTensor], c.site.Tensor)
	h[32] = byte(n)
	at := 33 + n
	m := min(copy(h[at+1:], c.site.Loc), 255)
	h[at] = byte(m)
}

func hashName(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := 0; i < len(s); i++ {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// agrees reports whether a peer's header matches this call's.
func (c *call) agrees(peer []byte) bool {
	return bytes.Equal(c.hdr[:headerKey], peer[:headerKey])
}

// describeHeader is the text of a header for an error message. Peers are
// trusted to be gtc programs, but lengths are checked all the same.
func describeHeader(h []byte) string {
	le := binary.LittleEndian
	op := Op(h[8])
	n := min(int(h[32]), maxTensor)
	tensor := string(h[33 : 33+n])
	at := 33 + n
	loc := h[at+1:]
	loc = loc[:min(int(h[at]), len(loc))]
	s := fmt.Sprintf("%s of %q", op, tensor)
	if op == OpSend {
		s = fmt.Sprintf("send/recv of %q", tensor)
	}
	if op == OpBarrier && tensor == "" {
		s = "barrier"
	}
	s += fmt.Sprintf(" (call %d", le.Uint64(h))
	if op != OpBarrier {
		s += fmt.Sprintf(", %s, %d bytes", DType(h[9]), le.Uint64(h[16:]))
	}
	if op.reduces() {
		s += ", " + ReduceOp(h[10]).String()
	}
	if op.rooted() {
		s += fmt.Sprintf(", root %d", le.Uint32(h[12:]))
	}
	s += ")"
	if len(loc) > 0 {
		s += " at " + string(loc)
	}
	return s
}

// String names the call as errors do: all_reduce of "d_w" (model.py:41).
func (c *call) String() string { return siteString(c.op, c.site) }

func siteString(op Op, s *Site) string {
	name := op.String()
	if s == nil {
		return name
	}
	if s.Collective != "" {
		name = s.Collective
	}
	if s.Tensor != "" {
		name += fmt.Sprintf(" of %q", s.Tensor)
	}
	if s.Loc != "" {
		name += " (" + s.Loc + ")"
	}
	return name
}
