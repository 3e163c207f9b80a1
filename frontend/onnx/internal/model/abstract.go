package model

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// Abstract initializers (Options.Abstract) have a type and no contents: the file that they are in is absent or too short, or
// the model declares dims and no data. A model that is too large for this machine compiles nevertheless: nothing of their
// size is read, made or written.

// errAbsent says that the contents of an abstract initializer are asked for.
var errAbsent = errors.New("its contents are absent (--abstract-weights), and they are needed when compiling: only parameters " +
	"may lack them; store shapes, masks and tables in the model's file")

// hintAbstract ends errors about data that is not there.
const hintAbstract = " (--abstract-weights compiles a model without its weights)"

// missing reports whether the data of t is not there; an error tells what is wrong with its place, there or not.
func (t *Tensor) missing() (bool, error) {
	if t.Type.Elems() == 0 {
		return false, nil
	}
	if t.Proto.GetDataLocation() != onnxpb.TensorProto_EXTERNAL {
		return (t.Proto.RawData == nil || len(*t.Proto.RawData) == 0) && t.typedLen() == 0, nil
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
func (m *File) claim(t *Tensor) error {
	m.absent += t.Type.Elems()
	if m.absent > maxElems {
		return fmt.Errorf("the initializers without contents hold more than %d elements", maxElems)
	}
	return nil
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
