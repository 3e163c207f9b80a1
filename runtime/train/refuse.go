package train

import (
	"fmt"
	"slices"
	"unsafe"

	"github.com/gtc-compiler/gtc/runtime/abi"
)

// rowError is a kernel's refusal of an index.
type rowError struct {
	call   *Call
	row    int64
	input  string // that holds the index; "" when it was computed
	from   string // that a computed index comes from, if it is known
	value  int64
	sample int // of this call's batch
	micro  int
}

func (e *rowError) Error() string {
	what := fmt.Sprintf("row %d has an index (a token or a class) that is out of range", e.row)
	if e.input != "" {
		what = fmt.Sprintf("%q has a value out of range, %d", e.input, e.value)
	}
	if e.from != "" {
		what = fmt.Sprintf("row %d has an index (a token or a class) that is out of range; %q, which it is made from, has %d there", e.row, e.from, e.value)
	}
	return fmt.Sprintf("%s: %s, at %s", e.call.Name, what, or(e.call.Loc, "an op without a location"))
}

// refused finds the input element behind a kernel's refusal of a row, if the kernel reads it from an input.
func (m *machine) refused(f *function, c *Call, row int64, micro int) error {
	e := &rowError{call: c, row: row, micro: micro}
	first := len(c.At)
	var made []string // inputs with as many integers as the kernel reads indices: what computed ones come from
	for _, name := range f.info.Inputs {
		t := m.plan.tensor[name]
		i := slices.Index(c.At, t.Offset) // operands come before sizes, which may look like one
		n := elems(t.Dims)
		if row >= int64(n) || t.Role == "weight" {
			continue
		}
		v, ok := m.integer(t, row)
		if ok && slices.Contains(c.At[min(3, len(c.At)):], n) {
			made = append(made, name)
		}
		if !ok || i < 0 || i >= first {
			continue
		}
		first, e.input, e.value, e.sample = i, name, v, int(row)/max(n/max(t.Dims[0], 1), 1)
	}
	if e.input == "" && len(made) == 1 {
		t := m.plan.tensor[made[0]]
		e.from = made[0]
		e.value, _ = m.integer(t, row)
		e.sample = int(row) / max(elems(t.Dims)/max(t.Dims[0], 1), 1)
	}
	return e
}

// integer is element i of an input, when its elements are of a type that indices have.
func (m *machine) integer(t *abi.Tensor, i int64) (int64, bool) {
	p := unsafe.Add(m.base, t.Offset+int(i)*elemSizes[t.DType])
	switch t.DType {
	case "i64":
		return *(*int64)(p), true
	case "i32":
		return int64(*(*int32)(p)), true
	case "u8":
		return int64(*(*uint8)(p)), true
	}
	return 0, false
}
