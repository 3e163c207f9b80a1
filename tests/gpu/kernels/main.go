// Command kernels runs kernels on a GPU with operands that tests have run them with on a processor, and compares the results.
// tests/gpu/prepare makes the files.
//
//	kernels FILE.cases ...
//	kernels -bench FILE.bench ...
//
// With -bench it times launches, and prints a JSON line for each. Without, it prints a line for each case that differs and one for each file, and ends with 1 when a case differs, 2 when it could not
// run. Results in f32 agree within 1e-5 of their norm, in half precision within 2e-2 (their order of summation is another
// than the processor's only where tensor cores sum); integers are equal.
package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/kernels/cuda/cudatest/carry"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/device/cuda"
)

// statusBytes is the room of the status word behind a case's memory.
const statusBytes = 256

func main() {
	runtime.LockOSThread()
	timing := flag.Bool("bench", false, "time launches")
	flag.Parse()
	cases, bad := 0, 0
	for _, path := range flag.Args() {
		g, err := carry.Read(path)
		if err == nil && *timing {
			err = bench(g)
			cases++
		} else if err == nil {
			var wrong []error
			if wrong, err = group(g); err == nil {
				for _, w := range wrong {
					fmt.Printf("  %s: %v\n", filepath.Base(path), w)
				}
				fmt.Printf("%-60s %5d cases, %4d kernels, %d wrong\n", strings.TrimSuffix(filepath.Base(path), ".cases"), len(g.Cases), len(g.Kernels), len(wrong))
				cases, bad = cases+len(g.Cases), bad+len(wrong)
			}
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "kernels: %s: %v\n", path, err)
			os.Exit(2)
		}
	}
	if !*timing {
		fmt.Printf("%d passed, %d failed\n", cases-bad, bad)
	}
	if bad > 0 || cases == 0 {
		os.Exit(1)
	}
}

// open opens the device with the kernels of a group and memory for its cases, behind which is a status word.
func open(g *carry.Group) (d device.Device, status int, err error) {
	code := &device.Code{StandIn: g.StandIn, Driver: g.Driver}
	for _, k := range g.Kernels {
		code.Kernels = append(code.Kernels, k.Name)
	}
	for arch, data := range g.Images {
		code.Images = append(code.Images, device.Image{Arch: arch, Data: data})
	}
	size := 0
	for i := range g.Cases {
		size = max(size, g.Cases[i].Size)
	}
	size = (size + statusBytes - 1) &^ (statusBytes - 1)
	d, err = cuda.Open(code, device.Options{ArenaBytes: size + statusBytes, Log: func(string, ...any) {}})
	return d, size, err
}

// group runs the cases of a file. The device is opened anew for each: a fault in one spoils no other file.
func group(g *carry.Group) (wrong []error, err error) {
	d, size, err := open(g)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	for i := range g.Cases {
		if err := one(d, &g.Cases[i], size); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", g.Cases[i].Name, err))
			var f device.Failure
			if errors.As(err, &f) && f.Lost() {
				return append(wrong, fmt.Errorf("%d more cases not run", len(g.Cases)-i-1)), nil
			}
		}
	}
	return wrong, nil
}

// one runs a case; its status word lies at status.
func one(d device.Device, c *carry.Case, status int) error {
	memory := append(bytes.Clone(c.Memory), bytes.Repeat([]byte{0xff}, c.Size-len(c.Memory))...)
	word := binary.LittleEndian.AppendUint64(nil, math.MaxInt64)
	if err := errors.Join(d.Put(0, memory), d.Put(status, word)); err != nil {
		return err
	}
	w, err := d.Prepare(&device.Task{Launches: c.Launches, Status: status})
	if err != nil {
		return err
	}
	if err := d.Main().Run(w); err != nil {
		return err
	}
	if err := errors.Join(d.Main().Sync(), d.Get(memory, 0), d.Get(word, status)); err != nil {
		return err
	}
	if got := int64(binary.LittleEndian.Uint64(word)); got != c.Status {
		return fmt.Errorf("row %d is refused, not %d", got, c.Status)
	}
	for i := range c.Results {
		r := &c.Results[i]
		if err := compare(r.DType, memory[r.Offset:r.Offset+len(r.Want)], r.Want); err != nil {
			return fmt.Errorf("result %d, %s: %w", i, r.DType, err)
		}
	}
	return nil
}

// compare holds numbers against those of the processor, in the Euclidean norm.
func compare(d dtype.DType, got, want []byte) error {
	tol := map[dtype.DType]float64{dtype.F32: 1e-5, dtype.F16: 2e-2, dtype.BF16: 2e-2, dtype.F64: 1e-12}[d]
	if tol == 0 {
		if !bytes.Equal(got, want) {
			return errors.New("not equal")
		}
		return nil
	}
	diff, norm := 0.0, 0.0
	for at := 0; at < len(want); at += d.Size() {
		x, y := number(d, got[at:]), number(d, want[at:])
		switch {
		case x == y || x != x && y != y:
		case math.IsInf(x, 0) || math.IsInf(y, 0) || x != x || y != y:
			return fmt.Errorf("element %d is %g, want %g", at/d.Size(), x, y)
		default:
			diff += (x - y) * (x - y)
		}
		if y == y && !math.IsInf(y, 0) {
			norm += y * y
		}
	}
	if e := math.Sqrt(diff / max(norm, 1e-30)); !(e <= tol) {
		return fmt.Errorf("differs by %.3g", e)
	}
	return nil
}

func number(d dtype.DType, b []byte) float64 {
	switch d {
	case dtype.F64:
		return math.Float64frombits(binary.LittleEndian.Uint64(b))
	case dtype.F32:
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b)))
	case dtype.F16:
		return float64(dtype.F16ToF32(binary.LittleEndian.Uint16(b)))
	}
	return float64(dtype.BF16ToF32(binary.LittleEndian.Uint16(b)))
}
