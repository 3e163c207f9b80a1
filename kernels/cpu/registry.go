package cpu

import (
	"fmt"
	"reflect"
	"slices"
)

// template is a kernel that the compiler may name, and the function that sizes its workspace. half is the form that it has for
// calls with floats of 16 bits among their types; nil where there is none.
type template struct {
	call, workspace any
	half            func(name string, types []string) (form string, more []int, ok bool)
}

// templates lists every one, for sizing and for tests: generated programs call the functions directly. Each file of this package
// adds its own in an init function.
var templates = map[string]template{}

// Workspace gives the bytes of workspace that the named kernel needs with those integer attributes. It fails
// for a name that is no kernel, or a wrong number of attributes.
func Workspace(name string, ints []int) (int, error) {
	t, ok := templates[name]
	if !ok {
		return 0, fmt.Errorf("BUG: kernels/cpu has no kernel %q", name)
	}
	f := reflect.ValueOf(t.workspace)
	if f.Type().NumIn() != len(ints) {
		return 0, fmt.Errorf("BUG: kernel %s takes %d integers, not %d", name, f.Type().NumIn(), len(ints))
	}
	args := make([]reflect.Value, len(ints))
	for i, n := range ints {
		args[i] = reflect.ValueOf(n)
	}
	return int(f.Call(args)[0].Int()), nil
}

// halfCodes are the codes of the 16-bit floats.
var halfCodes = map[string]int{"f16": ElemF16, "bf16": ElemBF16}

// asTheyAre is the half of templates that compare or move elements whatever they are; the others compute in float32 and the types
// that they have a code for.
func asTheyAre(name string, _ []string) (form string, more []int, ok bool) { return name, nil, true }

// Form is the kernel that does what the named one does for pointers of those types (f32, bf16, i64, …; anything where there
// is none), and the integers that it takes after the others. It is the same one where the types are float32, and there is
// none, ok false, where the compiler is to cast floats of 16 bits to float32 around the call, or to take the op apart.
func Form(name string, types []string) (form string, more []int, ok bool) {
	t, ok := templates[name]
	if !ok {
		return "", nil, false
	}
	if !slices.ContainsFunc(types, func(t string) bool { return halfCodes[t] != 0 }) {
		return name, nil, true
	}
	if t.half == nil {
		return "", nil, false
	}
	return t.half(name, types)
}

// Func returns the named kernel's Go function, for tests that call any kernel by name; nil when there is none.
func Func(name string) any { return templates[name].call }
