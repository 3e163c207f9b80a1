package train

import (
	"fmt"
	"slices"
	"strings"

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
	return fmt.Sprintf("%s: %s, at %s", e.call.Name, what, place(e.call.Loc))
}

// refused finds the input element behind a kernel's refusal of a row, if the kernel reads it from an input.
// look reads an element of an input, as integer does.
func (m *machine) refused(f *function, c *Call, row int64, micro int, look func(t *abi.Tensor, i int64) (int64, bool)) error {
	e := &rowError{call: c, row: row, micro: micro}
	at := c.operands()
	first := len(at)
	var made []string // inputs with as many integers as the kernel reads indices: what computed ones come from
	for _, name := range f.info.Inputs {
		t := m.plan.tensor[name]
		i := slices.Index(at, t.Offset) // operands come before sizes, which may look like one
		n := elems(t.Dims)
		if row >= int64(n) || t.Role == "weight" {
			continue
		}
		v, ok := look(t, row)
		if ok && (slices.Contains(c.At[min(3, len(c.At)):], n) || c.At == nil) {
			made = append(made, name)
		}
		if !ok || i < 0 || i >= first {
			continue
		}
		e.micro = partOf(t, micro)
		first, e.input, e.value, e.sample = i, strings.TrimPrefix(name, abi.WholePrefix), v, int(row)/max(n/max(t.Dims[0], 1), 1)
	}
	if e.input == "" && len(made) == 1 {
		t := m.plan.tensor[made[0]]
		e.from, e.micro = strings.TrimPrefix(made[0], abi.WholePrefix), partOf(t, micro)
		e.value, _ = look(t, row)
		e.sample = int(row) / max(elems(t.Dims)/max(t.Dims[0], 1), 1)
	}
	return e
}

// integer is element i of an input, when its elements are of a type that indices have.
func (m *machine) integer(t *abi.Tensor, i int64) (int64, bool) {
	size := elemSizes[t.DType]
	b, err := m.stretch(t.Offset+int(i)*size, size)
	if err != nil {
		return 0, false
	}
	return index(b, t.DType)
}
