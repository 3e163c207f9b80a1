//go:build mpi

package mpi

// #include "gtc_mpi.h"
import "C"

import (
	"unsafe"

	"github.com/gtc-compiler/gtc/distributed/comm"
)

const (
	// pieceBytes is how much of a buffer is reduced at a time, and so the
	// scratch memory of a group: large enough that MPI's large-message
	// algorithms serve.
	pieceBytes = 16 << 20
	// smallBytes is the size up to which all ranks get everything and sum it
	// themselves.
	smallBytes = 4 << 10
)

// room is n bytes of scratch.
func (d *driver) room(n int) []byte {
	if len(d.scratch) < n {
		const line = 64
		b := make([]byte, n+line)
		off := int(-uintptr(unsafe.Pointer(&b[0])) & (line - 1))
		d.scratch = b[off : off+n : off+n]
	}
	return d.scratch[:n]
}

// reduce is all_reduce and reduce, piece by piece.
func (d *driver) reduce(c *comm.Call) error {
	for lo := 0; lo == 0 || lo < len(c.Dst); lo += pieceBytes {
		piece := c.Dst[lo:min(lo+pieceBytes, len(c.Dst))]
		do := d.reducePiece
		if len(piece) <= smallBytes && c.Op == comm.OpAllReduce {
			do = d.reduceSmall
		}
		if err := do(c, piece); err != nil {
			return err
		}
	}
	return nil
}

// reduceSmall is an all_reduce by an all_gather.
func (d *driver) reduceSmall(c *comm.Call, buf []byte) error {
	all := d.room(d.size * len(buf))
	if code := C.gtc_mpi_allgather(at(all), at(buf), count(buf, c), size(c), 0, d.c, d.seconds()); code != 0 {
		return d.fault(c, code)
	}
	d.combine(c, buf, all)
	return nil
}

// combine sums the blocks of all, one of each rank and each as long as dst.
func (d *driver) combine(c *comm.Call, dst, all []byte) {
	for r := range d.parts {
		d.parts[r] = all[r*len(dst):][:len(dst):len(dst)]
	}
	comm.Combine(dst, d.parts, c.DType, c.Reduce)
}

// part is the range of rank r in elems elements that are cut evenly.
func (d *driver) part(elems, r int) (lo, hi int) {
	return elems * r / d.size, elems * (r + 1) / d.size
}

// reducePiece has each rank sum its part of buf. Then all, or the root, get
// the parts. buf of another rank than the root is left as it is in a reduce.
func (d *driver) reducePiece(c *comm.Call, buf []byte) error {
	es := c.DType.Size()
	elems := len(buf) / es
	lo, hi := d.part(elems, d.rank)
	mine := hi - lo
	for r := range d.size {
		from, to := d.part(elems, r)
		d.sat[r], d.sn[r] = C.int(from), C.int(to-from)
		d.rat[r], d.rn[r] = C.int(r*mine), C.int(mine)
	}
	all := d.room((d.size + 1) * mine * es)
	sum, all := all[:mine*es], all[mine*es:]
	code := C.gtc_mpi_alltoallv(at(all), &d.rn[0], &d.rat[0], at(buf), &d.sn[0], &d.sat[0], size(c), d.c, d.seconds())
	if code != 0 {
		return d.fault(c, code)
	}
	if c.Op == comm.OpAllReduce {
		sum = buf[lo*es : hi*es]
	}
	d.combine(c, sum, all)
	if c.Op == comm.OpAllReduce {
		return d.fault(c, C.gtc_mpi_allgatherv(at(buf), &d.sn[0], &d.sat[0], size(c), d.c, d.seconds()))
	}
	return d.fault(c, C.gtc_mpi_gatherv(at(buf), &d.sn[0], &d.sat[0], at(sum), C.int(mine), size(c), C.int(c.Root), d.c, d.seconds()))
}

// reduceScatter sums block rank of all ranks' src into dst, piece by piece.
func (d *driver) reduceScatter(c *comm.Call) error {
	es := c.DType.Size()
	block := len(c.Dst)
	step := max(pieceBytes/d.size/es*es, es)
	for lo := 0; lo == 0 || lo < block; lo += step {
		n := min(step, block-lo)
		for r := range d.size {
			d.sat[r], d.sn[r] = C.int((r*block+lo)/es), C.int(n/es)
			d.rat[r], d.rn[r] = C.int(r*n/es), C.int(n/es)
		}
		all := d.room(d.size * n)
		code := C.gtc_mpi_alltoallv(at(all), &d.rn[0], &d.rat[0], at(c.Src), &d.sn[0], &d.sat[0], size(c), d.c, d.seconds())
		if code != 0 {
			return d.fault(c, code)
		}
		d.combine(c, c.Dst[lo:lo+n], all)
	}
	return nil
}
