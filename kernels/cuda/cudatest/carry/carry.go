// Package carry holds kernels with their operands and results in a file, so that what tests have run on this processor is run
// again on a machine with a GPU, and compared.
package carry

import (
	"compress/gzip"
	"encoding/gob"
	"fmt"
	"os"
	"slices"

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

// piece is the bytes of contents that are kept once, however many cases have them: tests try one problem in many ways. Buffers
// begin at multiples of it.
const piece = 256

// packed is a group as it is in a file, its contents apart.
type packed struct {
	Group  *Group // without contents of memory and results
	Pieces []byte // of contents, piece bytes each
	Blobs  []blob // contents: of each case, the memory and then the results
}

// blob is contents: numbers of pieces, each less the one before, less 1.
type blob struct {
	Bytes int
	Steps []int32
}

// packer collects pieces.
type packer struct {
	packed
	known map[string]int32
}

func (p *packer) add(data []byte) {
	b, last := blob{Bytes: len(data)}, int32(-1)
	for at := 0; at < len(data); at += piece {
		part := make([]byte, piece)
		copy(part, data[at:])
		n, ok := p.known[string(part)]
		if !ok {
			n = int32(len(p.known))
			p.known[string(part)] = n
			p.Pieces = append(p.Pieces, part...)
		}
		b.Steps = append(b.Steps, n-last-1)
		last = n
	}
	p.Blobs = append(p.Blobs, b)
}

// next takes the first blob that is left.
func (p *packed) next() []byte {
	b, last := p.Blobs[0], int32(-1)
	p.Blobs = p.Blobs[1:]
	data := make([]byte, 0, len(b.Steps)*piece)
	for _, s := range b.Steps {
		last += s + 1
		data = append(data, p.Pieces[int(last)*piece:(int(last)+1)*piece]...)
	}
	return data[:b.Bytes]
}

// Write puts a group into a file.
func Write(path string, g *Group) error {
	own := *g
	own.Cases = slices.Clone(g.Cases)
	p := packer{packed{Group: &own}, map[string]int32{}}
	for i := range own.Cases {
		c := &own.Cases[i]
		p.add(c.Memory)
		c.Memory, c.Results = nil, slices.Clone(c.Results)
		for k := range c.Results {
			p.add(c.Results[k].Want)
			c.Results[k].Want = nil
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	z := gzip.NewWriter(f)
	if err := gob.NewEncoder(z).Encode(&p.packed); err != nil {
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
	p := &packed{}
	if err := gob.NewDecoder(z).Decode(p); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for i := range p.Group.Cases {
		c := &p.Group.Cases[i]
		c.Memory = p.next()
		for k := range c.Results {
			c.Results[k].Want = p.next()
		}
	}
	return p.Group, nil
}
