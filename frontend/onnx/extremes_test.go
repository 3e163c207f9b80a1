package onnx

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strings"
	"testing"
	"time"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxtest"
	"github.com/gtc-compiler/gtc/ir"
)

// What an import of a small file may cost: heap, with rubbish that is not collected yet, and time on a busy machine.
const (
	mayHold = 1 << 30
	mayTake = 30 * time.Second
)

// costly imports data and fails the test when that panics, says BUG, or takes more memory or time than a file may. It
// gives the import's error.
func costly(t *testing.T, what string, data []byte, opts Options) (err error) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	start := time.Now()
	err = importWhole(t, what, data, opts)
	runtime.ReadMemStats(&after)
	if d := time.Since(start); d > mayTake {
		t.Errorf("%s: takes %v", what, d)
	}
	if after.TotalAlloc-before.TotalAlloc > mayHold { // perhaps not all at a time
		if held := peak(func() { importWhole(t, what, data, opts) }); held > mayHold {
			t.Errorf("%s: holds %d MiB", what, held>>20)
		}
	}
	if err != nil && strings.Contains(err.Error(), "BUG") {
		t.Errorf("%s: %v", what, err)
	}
	return err
}

// importWhole parses, imports, verifies and inspects; a panic fails the test.
func importWhole(t *testing.T, what string, data []byte, opts Options) error {
	defer func() {
		if e := recover(); e != nil {
			t.Errorf("%s: panic: %v\n%s", what, e, debug.Stack())
		}
	}()
	m, err := Parse(data, "", opts)
	if err != nil {
		return err
	}
	mod, err := m.Import()
	if err != nil {
		return err
	}
	if e := mod.Verify(); e != nil {
		t.Errorf("%s: %v", what, e)
	}
	if _, e := m.Inspect(); e != nil {
		t.Errorf("%s: %v", what, e)
	}
	return nil
}

var extremes = []int64{math.MinInt64, -1 << 40, -7, -1, 0, 1, 3, 1000, 1 << 20, 1 << 31, 1 << 40, 1 << 62, math.MaxInt64}

var extremeFloats = []float32{float32(math.NaN()), float32(math.Inf(1)), -1e30, -1, 0, 1e-30, 1e9, 1e30}

// fixedInputs reads a case's inputs as constants.
func fixedInputs(p *onnxpb.ModelProto, in map[int][]byte) map[string]*ir.Tensor {
	fixed := map[string]*ir.Tensor{}
	for i, v := range p.Graph.Input {
		if x, err := ReadTensor(in[i]); err == nil {
			fixed[v.GetName()] = x
		}
	}
	return fixed
}

// everyExtreme visits c's model with each number of its attributes and each element of its small integer tensors set to
// each extreme, one at a time: keep says which of them to try.
func everyExtreme(c *onnxtest.Case, keep func() bool, try func(what string, p *onnxpb.ModelProto, in map[int][]byte)) {
	p := &onnxpb.ModelProto{}
	if p.Unmarshal(c.Model) != nil || p.Graph == nil {
		return
	}
	for _, n := range p.Graph.Node {
		for _, a := range n.Attribute {
			attrExtremes(n, a, func(value string) {
				if keep() {
					try(fmt.Sprintf("%s: %s of %s is %s", c.Name, a.GetName(), n.GetOpType(), value), p, c.Sets[0].In)
				}
			})
		}
	}
	for i, data := range c.Sets[0].In {
		x := &onnxpb.TensorProto{}
		if x.Unmarshal(data) != nil || x.GetDataType() != int32(onnxpb.TensorProto_INT64) || x.RawData == nil || len(*x.RawData) > 64 {
			continue
		}
		for at := 0; at < len(*x.RawData); at += 8 {
			old := binary.LittleEndian.Uint64((*x.RawData)[at:])
			for _, v := range extremes {
				if !keep() {
					continue
				}
				binary.LittleEndian.PutUint64((*x.RawData)[at:], uint64(v))
				changed, err := x.Marshal()
				if err != nil {
					panic(err)
				}
				in := map[int][]byte{}
				for k, d := range c.Sets[0].In {
					in[k] = d
				}
				in[i] = changed
				try(fmt.Sprintf("%s: element %d of input %d is %d", c.Name, at/8, i, v), p, in)
			}
			binary.LittleEndian.PutUint64((*x.RawData)[at:], old)
		}
	}
}

// attrExtremes sets the attribute to each extreme in turn and puts it back.
func attrExtremes(n *onnxpb.NodeProto, a *onnxpb.AttributeProto, try func(value string)) {
	switch a.GetType() {
	case onnxpb.AttributeProto_INT:
		old := a.I
		for _, v := range extremes {
			a.I = ptr(v)
			try(fmt.Sprint(v))
		}
		a.I = old
	case onnxpb.AttributeProto_INTS:
		for i, old := range a.Ints {
			for _, v := range extremes {
				a.Ints[i] = v
				try(fmt.Sprintf("%v", a.Ints))
			}
			a.Ints[i] = old
		}
		old := a.Ints
		for _, list := range [][]int64{{}, {1}, make([]int64, 100)} {
			a.Ints = list
			try(fmt.Sprintf("%d numbers", len(list)))
		}
		a.Ints = old
	case onnxpb.AttributeProto_FLOAT:
		old := a.F
		for _, v := range extremeFloats {
			a.F = ptr(v)
			try(fmt.Sprint(v))
		}
		a.F = old
	case onnxpb.AttributeProto_FLOATS:
		for i, old := range a.Floats {
			for _, v := range extremeFloats {
				a.Floats[i] = v
				try(fmt.Sprintf("%v", a.Floats))
			}
			a.Floats[i] = old
		}
	case onnxpb.AttributeProto_STRING:
		old := a.S
		for _, s := range []string{"", "\x00\x1b[31m*/", strings.Repeat("a,", 1<<12), strings.Repeat("abc...->", 100)} {
			a.S = []byte(s)
			try(fmt.Sprintf("%.20q", s))
		}
		a.S = old
	case onnxpb.AttributeProto_TENSOR:
		if a.T != nil && a.T.RawData != nil && a.T.GetDataType() == int32(onnxpb.TensorProto_INT64) && len(*a.T.RawData) >= 8 {
			old := binary.LittleEndian.Uint64(*a.T.RawData)
			for _, v := range extremes {
				binary.LittleEndian.PutUint64(*a.T.RawData, uint64(v))
				try(fmt.Sprint(v))
			}
			binary.LittleEndian.PutUint64(*a.T.RawData, old)
		}
	}
}

// TestExtremes sets numbers of the ONNX project's cases to absurd values: all of them with GTC_LONG=1 (some
// minutes), a few without.
func TestExtremes(t *testing.T) {
	r, one := rand.New(rand.NewPCG(5, 6)), 60
	if os.Getenv("GTC_LONG") != "" {
		one = 1
	}
	keep := func() bool { return r.IntN(one) == 0 }
	tried := 0
	for _, c := range readBackend(t, func(string) bool { return true }) {
		everyExtreme(c, keep, func(what string, p *onnxpb.ModelProto, in map[int][]byte) {
			data, err := p.Marshal()
			if err != nil {
				return
			}
			for _, fixed := range []bool{false, true} {
				o := Options{Batch: 2}
				if fixed {
					o.Batch = 0
					o.Fixed = fixedInputs(p, in)
				}
				costly(t, what, data, o)
				tried++
			}
		})
	}
	t.Logf("%d models", tried)
}

// peak is the most bytes on the heap while f runs, rubbish included.
func peak(f func()) uint64 {
	runtime.GC()
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	read := func() uint64 {
		metrics.Read(sample)
		return sample[0].Value.Uint64()
	}
	first, most := read(), uint64(0)
	done, stopped := make(chan bool), make(chan bool)
	go func() {
		defer close(stopped)
		for {
			most = max(most, read()-min(first, read()))
			select {
			case <-done:
				return
			case <-time.After(time.Millisecond):
			}
		}
	}()
	f()
	close(done)
	<-stopped
	return most
}
