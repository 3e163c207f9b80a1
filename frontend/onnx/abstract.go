package onnx

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// Abstract initializers (Options.Abstract) have a type and no contents: the file that they are in is absent or too short, or
// the model declares dims and no data. A model that is too large for this machine compiles nevertheless: nothing of their
// size is read, made or written.

// errAbsent says that the contents of an abstract initializer are asked for.
var errAbsent = errors.New("its contents are absent (--abstract-weights), and they are needed when compiling: only parameters " +
	"may be without; store shapes, masks and tables in the model's file")

// hintAbstract ends errors about data that is not there.
const hintAbstract = " (--abstract-weights compiles a model without its weights)"

// missing reports whether the data of t is not there; an error tells what is wrong with its place, there or not.
func (t *tensor) missing() (bool, error) {
	if t.typ.Elems() == 0 {
		return false, nil
	}
	if t.proto.GetDataLocation() != onnxpb.TensorProto_EXTERNAL {
		return (t.proto.RawData == nil || len(*t.proto.RawData) == 0) && t.typedLen() == 0, nil
	}
	at, err := t.place()
	if err != nil {
		return false, err
	}
	if t.model.Dir == "" {
		return true, nil
	}
	file, err := t.model.mapExternal(at.location)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return err == nil && !at.in(file), err
}

// claim adds what abstract initializers come to: sizes of programs are computed with ints.
func (m *Model) claim(t *tensor) error {
	m.absent += t.typ.Elems()
	if m.absent > maxElems {
		return fmt.Errorf("the initializers without contents hold more than %d elements", maxElems)
	}
	return nil
}

// keepAbsent makes buffers of constants without contents: the program holds them like weights, and a checkpoint fills
// them. What the user should know of roles and ties that were decided without contents is told.
func (r *roles) keepAbsent() {
	count := 0
	for _, t := range r.m.initList {
		if t.absent {
			count++
		}
	}
	if count == 0 {
		return
	}
	for _, p := range r.params {
		if p.absent && p.Role == RoleConstant {
			p.Role, p.Reason = RoleBuffer, p.Reason+"; its contents are absent, so it is kept as a buffer that a checkpoint fills"
		}
	}
	r.m.warn("the contents of %d of %d initializers are absent (--abstract-weights): their roles are decided by names and uses, and "+
		"copies are tied only where the exporter's record tells (see --train, --freeze and --tie); the programs start from a checkpoint only",
		count, len(r.m.initList))
}

// alike reports whether t may be one of several equal tensors that an exporter merged: all its elements are equal, as
// far as they are known.
func (t *tensor) alike() (bool, error) {
	if t.absent {
		return true, nil
	}
	return t.uniform()
}

// foldedTranspose reports whether the exporter's record alone tells that t, whose contents are absent, is the transpose of
// p, which it was folded from.
func (r *roles) foldedTranspose(t *tensor, p *Parameter) bool {
	d, pd := t.typ.Dims, p.Type.Dims
	return t.absent && len(r.m.torch.from[t.name]) == 1 && numberedRE.ReplaceAllString(t.name, "") == "t" && len(d) == 2 &&
		slices.Equal(d, []int{pd[len(pd)-1], pd[0]}) && len(pd) == 2
}

// place is where in which file external data lies.
type place struct {
	location       string
	offset, length int
}

// in reports whether a file is long enough.
func (p place) in(file []byte) bool { return p.offset <= len(file) && p.length <= len(file)-p.offset }

// lostFile is err with a hint, when a file of external data is not there.
func lostFile(err error) error {
	if errors.Is(err, fs.ErrNotExist) && !strings.Contains(err.Error(), hintAbstract) {
		return fmt.Errorf("%w%s", err, hintAbstract)
	}
	return err
}
