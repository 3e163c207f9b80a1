package comm

import (
	"fmt"
	"sync"
	"unsafe"
)

// memHub joins ranks that are goroutines of one process: the same shared
// memory algorithms over ordinary memory, and no connections.
type memHub struct {
	worlds []*world
	mu     sync.Mutex
	segs   map[string]*heapSegment
}

type heapSegment struct {
	mem  []byte
	uses int
}

// InProcess makes n communicators of one group whose ranks are goroutines of
// this process. It is the reference that the other backends are tested
// against. Each communicator must be closed by its own rank.
func InProcess(n int) []Communicator { return InProcessWith(n, Options{}) }

// InProcessWith is InProcess with a time-out; other options have no meaning.
func InProcessWith(n int, opt Options) []Communicator {
	opt.fill()
	h := &memHub{segs: make(map[string]*heapSegment)}
	all := make([]int, n)
	for r := range n {
		all[r] = r
		o := opt
		o.Rank, o.World, o.LocalRank = r, n, r
		w := newWorld(o)
		w.mem = h
		h.worlds = append(h.worlds, w)
	}
	out := make([]Communicator, n)
	for r, w := range h.worlds {
		w.root = newGroup(w, "world", "world", all)
		w.root.be = h.join(w.root)
		w.add(w.root)
		register(w)
		out[r] = w.root
	}
	return out
}

// join gives g its backend; the first member to come makes the memory.
func (h *memHub) join(g *group) backend {
	n := len(g.ranks)
	if n == 1 {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	key := fmt.Sprint(g.id, g.ranks)
	s := h.segs[key]
	if s == nil {
		l := layout(n)
		s = &heapSegment{mem: alignedBytes(l.total)}
		h.segs[key] = s
	}
	if s.uses++; s.uses == n {
		delete(h.segs, key)
	}
	return newShm(g, s.mem, nil)
}

// alignedBytes is zeroed memory aligned to a cache line.
func alignedBytes(size int) []byte {
	b := make([]byte, size+wordSize)
	off := -uintptr(unsafe.Pointer(&b[0])) & (wordSize - 1)
	return b[off : int(off)+size : int(off)+size]
}

// tell passes rank from's failure on to the others.
func (h *memHub) tell(from int, f *failure) {
	for r, w := range h.worlds {
		if r != from {
			w.failLocal(f)
		}
	}
}

func (h *memHub) leave(from int) {
	for _, w := range h.worlds {
		w.markLeft(from)
	}
}
