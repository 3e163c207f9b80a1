package machine

import (
	"fmt"
	"slices"

	"github.com/gtc-compiler/gtc/runtime/abi"
	"github.com/gtc-compiler/gtc/runtime/train/internal/program"
)

// RowError is a kernel's refusal of an index.
type RowError struct {
	call   *program.Call
	row    int64  // refused, of the call's operand
	Input  string // the input that holds the index; "" when the index was computed
	From   string // the input that a computed index comes from; "" when that is not known
	value  int64  // of the index, or of what it comes from
	Sample int    // row of the call's batch
	Micro  int    // micro-batch of the call
}

// Error implements error.
func (e *RowError) Error() string {
	what := fmt.Sprintf("row %d has an index (a token or a class) that is out of range", e.row)
	if e.Input != "" {
		what = fmt.Sprintf("%q has a value out of range, %d", e.Input, e.value)
	}
	if e.From != "" {
		what = fmt.Sprintf("row %d has an index (a token or a class) that is out of range; %q, which it is made from, has %d there", e.row, e.From, e.value)
	}
	return fmt.Sprintf("%s: %s, at %s", e.call.Name, what, program.Place(e.call.Loc))
}

// Refused finds the input element behind a kernel's refusal of a row, if the kernel reads it from an input.
// look reads an element of an input, as integer does.
func (m *Machine) Refused(f *Function, c *program.Call, row int64, micro int, look func(t *abi.Tensor, i int64) (int64, bool)) error {
	e := &RowError{call: c, row: row, Micro: micro}
	at := c.Operands()
	first := len(at)
	var made []string // inputs with as many integers as the kernel reads indices: what computed ones come from
	for _, name := range f.Info.Inputs {
		t := m.Plan.Tensors[name]
		i := slices.Index(at, t.Offset) // operands come before sizes, which may look like one
		n := program.Elems(t.Dims)
		if row >= int64(n) || t.Role == abi.RoleWeight {
			continue
		}
		v, ok := look(t, row)
		if ok && (slices.Contains(c.At[min(3, len(c.At)):], n) || c.At == nil) {
			made = append(made, name)
		}
		if !ok || i < 0 || i >= first {
			continue
		}
		e.Micro = program.PartOf(t, micro)
		first, e.Input, e.value, e.Sample = i, abi.WholeData.Trim(name), v, int(row)/max(n/max(t.Dims[0], 1), 1)
	}
	if e.Input == "" && len(made) == 1 {
		t := m.Plan.Tensors[made[0]]
		e.From, e.Micro = abi.WholeData.Trim(made[0]), program.PartOf(t, micro)
		e.value, _ = look(t, row)
		e.Sample = int(row) / max(program.Elems(t.Dims)/max(t.Dims[0], 1), 1)
	}
	return e
}

// integer is element i of an input, when its elements are of a type that indices have.
func (m *Machine) integer(t *abi.Tensor, i int64) (int64, bool) {
	size := program.ElemSize(t.DType)
	b, err := m.Stretch(t.Offset+int(i)*size, size)
	if err != nil {
		return 0, false
	}
	return program.FirstIndex(b, t.DType)
}
