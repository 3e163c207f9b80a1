package loop

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/data"
	"github.com/gtc-compiler/gtc/runtime/device"
	"github.com/gtc-compiler/gtc/runtime/npz"
	"github.com/gtc-compiler/gtc/runtime/train/internal/machine"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
	"github.com/gtc-compiler/gtc/runtime/train/internal/ranks"
)

// fixedBatch is the mode of --fixed-batch: steps on one batch, taken as it is. The file holds the whole batch, arrays
// keyed by input name (or in0, in1, … and target); every rank takes its part. --results gets "loss" f64[steps], the
// loss before each update, abi.EmptySteps bool[steps], those in which nothing counts and the loss is none, and every named result of the first step under its name. Rank 0 writes it, with results
// that are spread over ranks or micro-batches put together.
func (s *session) fixedBatch() error {
	t := &trainer{session: s, saved: -1}
	err := t.functions()
	if err == nil {
		t.pace, err = t.newPacer()
	}
	if err != nil {
		return err
	}
	if t.pace != nil {
		defer t.pace.close()
	}
	if err := t.seedNoise(); err != nil {
		return err
	}
	batch, err := readBatch(s.cfg.fixedBatch, t.feed, &data.Options{})
	if err != nil {
		return ranks.Usagef("--fixed-batch: %w", err)
	}
	var arrays []npz.Array
	steps := max(s.cfg.steps, 1)
	losses, empty := make([]byte, 0, 8*steps), make([]byte, steps)
	for i := range steps {
		var first *collector
		if i == 0 {
			first = &collector{s: s}
		}
		begin := time.Now()
		if err := t.fixedStep(batch, first); err != nil {
			return err
		}
		if s.cfg.bench {
			s.rep.Step(t.step, &t.Results, time.Since(begin))
		}
		losses = binary.LittleEndian.AppendUint64(losses, math.Float64bits(t.Loss))
		if t.Void {
			empty[i] = 1
		}
		if first != nil {
			if arrays, err = first.join(); err != nil {
				return err
			}
		}
	}
	arrays = append(arrays, npz.Array{Name: "loss", DType: "f64", Shape: []int{len(losses) / 8}, Data: losses},
		npz.Array{Name: abi.EmptySteps, DType: "bool", Shape: []int{len(empty)}, Data: empty})
	return s.writeResults(s.cfg.results, s.Plan.AsModel(arrays))
}

// fixedStep does one update on the batch; first, when not nil, collects the results.
func (t *trainer) fixedStep(batch []npz.Array, first *collector) error {
	t.feed.Fresh()
	if err := t.choose(); err != nil {
		return err
	}
	if t.pace != nil && first == nil {
		if err := t.pace.fixed(batch); err != nil {
			return err
		}
		return t.finished()
	}
	for i := range t.actions {
		a := &t.actions[i]
		if err := t.feed.Fixed(batch, a.f, a.data); err != nil {
			return inFile("--fixed-batch "+t.cfg.fixedBatch, err)
		}
		err := t.m.Run(a.f, a.micro)
		if err == nil && first != nil {
			err = first.take(a.f, a.micro)
		}
		if err != nil {
			return t.failed(err)
		}
	}
	return t.finished()
}

// inFile blames a file for an error that is not the device's.
func inFile(file string, err error) error {
	var f device.Failure
	if errors.As(err, &f) {
		return err
	}
	return ranks.Usagef("%s: %w", file, err)
}

// readBatch reads the arrays of the inputs, by the names and with the transforms of opt, converted to their types.
func readBatch(path string, feed *machine.Feeder, opt *data.Options) ([]npz.Array, error) {
	if err := known(feed.Inputs, opt); err != nil {
		return nil, err
	}
	f, err := npz.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var batch []npz.Array
	k := 0
	for _, t := range feed.Inputs {
		names := []string{t.Name}
		if key := opt.Map[t.Name]; key != "" {
			names = []string{key}
			k++
		} else if t.Role == abi.RoleTarget {
			names = append(names, data.TargetNames...)
		} else {
			names = append(names, "in"+strconv.Itoa(k))
			k++
		}
		i := slices.IndexFunc(names, func(n string) bool { return slices.Contains(f.Names(), n) })
		if i < 0 {
			return nil, fmt.Errorf("%s: there is no array for input %q; there are %s", path, t.Name, strings.Join(f.Names(), ", "))
		}
		a, err := f.Read(names[i])
		if err != nil {
			return nil, err
		}
		if a, err = feed.Front(a, t); err != nil {
			return nil, fmt.Errorf("%s: array %q %w", path, names[i], err)
		}
		var b npz.Array
		if tr, ok := opt.Transforms[t.Name]; ok {
			b, err = transformed(a, t, feed.Rows, &tr)
		} else {
			b, err = convert(a, t.DType)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: array %q: %w", path, a.Name, err)
		}
		batch = append(batch, b)
	}
	return batch, nil
}

// known makes sure that the inputs that opt names are there.
func known(inputs []*abi.Tensor, opt *data.Options) error {
	for _, name := range slices.Sorted(maps.Keys(opt.Map)) {
		if !slices.ContainsFunc(inputs, func(t *abi.Tensor) bool { return t.Name == name }) {
			return fmt.Errorf("--map %s: the model has no such input", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(opt.Transforms)) {
		if !slices.ContainsFunc(inputs, func(t *abi.Tensor) bool { return t.Name == name }) {
			return fmt.Errorf("--transform %s: the model has no such input", name)
		}
	}
	return nil
}

// transformed is an array of an input of which a call takes so many samples, transformed as training data are.
func transformed(a *npz.Array, t *abi.Tensor, rows int, tr *data.Transform) (npz.Array, error) {
	out := npz.Array{Name: a.Name, DType: t.DType, Shape: slices.Clone(a.Shape)}
	if len(t.Dims) == 0 || t.Dims[0]%rows != 0 {
		return out, fmt.Errorf("--transform needs an input with samples, but %q is %s%v", t.Name, t.DType, t.Dims)
	}
	in := data.Input{Name: t.Name, DType: t.DType, Shape: slices.Clone(t.Dims)}
	if in.Shape[0] /= rows; in.Shape[0] == 1 {
		in.Shape = in.Shape[1:]
	}
	var err error
	out.Data, err = tr.Apply(a.Data, a.DType, &in)
	return out, err
}

// convert copies an array, changing its type where that loses nothing but the rounding of floats.
func convert(a *npz.Array, to string) (npz.Array, error) {
	out := npz.Array{Name: a.Name, DType: to, Shape: slices.Clone(a.Shape)}
	var err error
	out.Data, err = data.Convert(a.Data, a.DType, to)
	return out, err
}

// element reads one number.
func element(b []byte, dtype string) (float64, bool) {
	switch dtype {
	case "f32":
		return float64(math.Float32frombits(binary.LittleEndian.Uint32(b))), true
	case "f64":
		return math.Float64frombits(binary.LittleEndian.Uint64(b)), true
	case "i64":
		return float64(int64(binary.LittleEndian.Uint64(b))), true
	case "i32":
		return float64(int32(binary.LittleEndian.Uint32(b))), true
	case "i16":
		return float64(int16(binary.LittleEndian.Uint16(b))), true
	case "u16":
		return float64(binary.LittleEndian.Uint16(b)), true
	case "i8":
		return float64(int8(b[0])), true
	case "u8", "bool":
		return float64(b[0]), true
	}
	return 0, false
}

// writeResults writes an npz file on rank 0.
func (s *session) writeResults(path string, arrays []npz.Array) error {
	var err error
	if s.Plan.Rank == 0 {
		arrays = dedupe(arrays)
		for i := range arrays {
			if err == nil {
				err = forNumPy(&arrays[i])
			}
		}
		if err == nil {
			err = npz.WriteFile(path, arrays)
		}
	}
	return s.AllOK("writing "+path, err)
}

// forNumPy gives an array a type that NumPy has: bf16 is widened to f32, elements of 8 bits and fewer are their codes.
func forNumPy(a *npz.Array) error {
	switch a.DType {
	case "bf16":
		data, err := data.Convert(a.Data, a.DType, "f32")
		a.DType, a.Data = "f32", data
		return err
	case "i4", "i2":
		a.DType = "i8"
	case "bool":
	default:
		if program.ElemSize(a.DType) == 1 && a.DType != "i8" {
			a.DType = "u8"
		}
	}
	return nil
}

// dedupe keeps the last of arrays of one name: the curve "loss" goes before a result of that name.
func dedupe(arrays []npz.Array) []npz.Array {
	var out []npz.Array
	for i, a := range arrays {
		if !slices.ContainsFunc(arrays[i+1:], func(b npz.Array) bool { return b.Name == a.Name }) {
			out = append(out, a)
		}
	}
	return out
}
