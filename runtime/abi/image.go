package abi

import (
	"encoding/binary"
	"errors"
)

// GPU says what the kernels of a program for GPUs were compiled to.
type GPU struct {
	Arch     []string        `json:"arch"`               // what was asked for: sm_90, ..., or host
	Images   []string        `json:"images"`             // what there is: chips, PTX (compute_90), source or host
	Compiler string          `json:"compiler,omitempty"` // that made them
	Kernels  []KernelFigures `json:"kernels,omitempty"`
}

// KernelFigures are what the compiler tells of a kernel on a chip.
type KernelFigures struct {
	Name      string `json:"name"`
	Family    string `json:"family"` // pointwise, reduction, gemm, attention, conv, ...
	Arch      string `json:"arch"`
	Registers int    `json:"registers"`        // of a thread
	Spills    int    `json:"spills,omitempty"` // bytes written to and read from local memory because registers did not suffice
	Stack     int    `json:"stack,omitempty"`  // bytes of local memory of a thread
	Shared    int    `json:"shared,omitempty"` // bytes of static shared memory of a block
}

// Unit is some of a program's kernels, compiled together.
type Unit struct {
	Kernels []int  // their numbers in the program
	Data    []byte // a cubin, or PTX
}

// packMagic begins packed units: eight bytes, then little-endian 32-bit counts: of the units, and of each the kernels, the
// kernels' numbers and the bytes of data; then the data of all.
const packMagic = "gtcunit1"

// PackUnits puts units into one file.
func PackUnits(units []Unit) []byte {
	out := []byte(packMagic)
	word := func(n int) { out = binary.LittleEndian.AppendUint32(out, uint32(n)) }
	word(len(units))
	for _, u := range units {
		word(len(u.Kernels))
		for _, k := range u.Kernels {
			word(k)
		}
		word(len(u.Data))
	}
	for _, u := range units {
		out = append(out, u.Data...)
	}
	return out
}

// UnpackUnits is the inverse of PackUnits; the units' data is part of file.
func UnpackUnits(file []byte) ([]Unit, error) {
	if len(file) < len(packMagic) || string(file[:len(packMagic)]) != packMagic {
		return nil, errors.New("it does not hold compiled kernels")
	}
	rest, short := file[len(packMagic):], false
	word := func() int {
		if len(rest) < 4 {
			short = true
			return 0
		}
		n := binary.LittleEndian.Uint32(rest)
		rest = rest[4:]
		return int(n)
	}
	var units []Unit
	var sizes []int
	for range word() {
		u := Unit{}
		for range word() {
			if u.Kernels = append(u.Kernels, word()); short {
				break
			}
		}
		sizes = append(sizes, word())
		if units = append(units, u); short {
			break
		}
	}
	for i, n := range sizes {
		if short || n > len(rest) {
			return nil, errors.New("it is cut short")
		}
		units[i].Data, rest = rest[:n:n], rest[n:]
	}
	if short || len(rest) > 0 {
		return nil, errors.New("it is damaged")
	}
	return units, nil
}
