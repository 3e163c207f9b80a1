package cpu

import (
	"fmt"
	"reflect"
	"slices"
)

// template is a kernel and the function that sizes its workspace.
type template struct{ call, workspace any }

// templates lists every kernel that the compiler may name, for sizing and for tests. Generated programs
// call the functions directly.
var templates = map[string]template{
	"Gemm":           {Gemm, GemmWorkspace},
	"GemmHalf":       {GemmHalf, GemmHalfWorkspace},
	"GemmAny":        {GemmAny, GemmAnyWorkspace},
	"AttnFwd":        {AttnFwd, AttnFwdWorkspace},
	"AttnBwd":        {AttnBwd, AttnBwdWorkspace},
	"XentFwd":        {XentFwd, XentFwdWorkspace},
	"XentBwd":        {XentBwd, XentBwdWorkspace},
	"XentFwdBwd":     {XentFwdBwd, XentFwdBwdWorkspace},
	"ConvFwd":        {ConvFwd, ConvFwdWorkspace},
	"ConvBwdData":    {ConvBwdData, ConvBwdDataWorkspace},
	"ConvBwdWeight":  {ConvBwdWeight, ConvBwdWeightWorkspace},
	"MaxPoolFwd":     {MaxPoolFwd, MaxPoolFwdWorkspace},
	"MaxPoolBwd":     {MaxPoolBwd, MaxPoolBwdWorkspace},
	"AvgPoolFwd":     {AvgPoolFwd, AvgPoolFwdWorkspace},
	"AvgPoolBwd":     {AvgPoolBwd, AvgPoolBwdWorkspace},
	"GatherRows":     {GatherRows, GatherRowsWorkspace},
	"ScatterAddRows": {ScatterAddRows, ScatterAddRowsWorkspace},
	"Transpose":      {Transpose, TransposeWorkspace},
	"MaxPool3Fwd":    {MaxPool3Fwd, MaxPool3FwdWorkspace},
	"MaxPool3Bwd":    {MaxPool3Bwd, MaxPool3BwdWorkspace},
	"AvgPool3Fwd":    {AvgPool3Fwd, AvgPool3FwdWorkspace},
	"AvgPool3Bwd":    {AvgPool3Bwd, AvgPool3BwdWorkspace},
	"Take":           {Take, TakeWorkspace},
	"ScatterRows":    {ScatterRows, ScatterRowsWorkspace},
	"TopK":           {TopK, TopKWorkspace},
	"Scan":           {Scan, ScanWorkspace},
	"Det":            {Det, DetWorkspace},
	"Cofactor":       {Cofactor, CofactorWorkspace},
	"RoiAlignFwd":    {RoiAlignFwd, RoiAlignFwdWorkspace},
	"RoiAlignBwd":    {RoiAlignBwd, RoiAlignBwdWorkspace},
}

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

// moving are the templates that compare or move elements whatever they are; the others compute in float32 and the types that
// they have a code for.
var moving = map[string]bool{"Take": true, "GatherRows": true, "Transpose": true, "ScatterRows": true}

// Form is the kernel that does what the named one does for pointers of those types (f32, bf16, i64, …; anything where there
// is none), and the integers that it takes after the others. It is the same one where the types are float32, and there is
// none, ok false, where the compiler is to cast floats of 16 bits to float32 around the call, or to take the op apart.
func Form(name string, types []string) (form string, more []int, ok bool) {
	if _, ok := templates[name]; !ok {
		return "", nil, false
	}
	half := slices.ContainsFunc(types, func(t string) bool { return halfCodes[t] != 0 })
	if !half || moving[name] {
		return name, nil, true
	}
	if name != "Gemm" || len(types) != 4 || types[0] != types[1] || halfCodes[types[0]] == 0 {
		return "", nil, false
	}
	codes := []int{halfCodes[types[0]], ElemF32, ElemF32}
	for i, t := range []string{types[3], types[2]} { // C, bias
		if t == types[0] {
			codes[1+i] = codes[0]
		} else if t != "f32" && !(i == 1 && halfCodes[t] == 0) {
			return "", nil, false
		}
	}
	return "GemmHalf", codes, true
}

// Func returns the named kernel's Go function, for tests that call any kernel by name; nil when there is none.
func Func(name string) any { return templates[name].call }
