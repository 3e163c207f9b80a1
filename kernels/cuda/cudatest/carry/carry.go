// Package carry holds kernels with their operands and results in a file, so that what tests have run on this processor is run
// again on a machine with a GPU, and compared.
package carry

import (
	"compress/gzip"
	"encoding/gob"
	"fmt"
	"os"

	"github.com/gtc-compiler/gtc/ir/dtype"
	"github.com/gtc-compiler/gtc/runtime/abi"
)

// Group is the cases of a test.
type Group struct {
	Name    string
	Kernels []Kernel
	Images  map[string][]byte // the kernels compiled, by arch, as runtime/device has them
	StandIn []byte            // of the arch host
	Driver  int               // the CUDA that the images need, such as 13000
	Cases   []Case
}

// Kernel is a kernel's text, which includes headers of kernels/cuda.
type Kernel struct {
	Name, Text, Family string
	Include            []string
}

// Case is launches on memory, which has the buffers one after the other.
type Case struct {
	Name     string
	Memory   []byte // before
	Size     int    // of all memory: Memory, then the workspace, of NaNs
	Launches []Launch
	Results  []Result
	Status   int64 // that kernels leave: math.MaxInt64, or the first row that they refuse

	// Of a case whose launches are timed, and nothing else: it has no Memory and no Results.
	Filled       []Span  // what has numbers before, such as f32 and half precision have between -2 and 2; all else is zero
	Flops, Bytes float64 // operations, and bytes moved at the least, of which 0 are not reported
}

// Span is the bytes of a memory from From to To.
type Span struct{ From, To int }

// Launch is abi.Launch, by the number of the kernel in the group.
type Launch = abi.Launch

// Result is elements of the memory after the launches, as this processor computed them.
type Result struct {
	Offset int
	DType  dtype.DType
	Want   []byte
}

// Write puts groups into a file.
func Write(path string, g *Group) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z := gzip.NewWriter(f)
	if err := gob.NewEncoder(z).Encode(g); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return f.Close()
}

// Read reads what Write wrote.
func Read(path string) (*Group, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	g := &Group{}
	if err := gob.NewDecoder(z).Decode(g); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return g, nil
}
