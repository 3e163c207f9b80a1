package cuda

import "github.com/gtc-compiler/gtc/ir/dtype"

// TrainingProducts are the products of a training step of GPT-2 124M at 32 x 1,024 tokens in bf16, of a wider model, and of a
// multilayer perceptron of 512 x 512 layers at a batch of 128 in f32: forward with what follows, and both gradients.
func TrainingProducts() []Call {
	b, f, none := dtype.BF16, dtype.F32, dtype.Invalid
	var list []Call
	layer := func(d dtype.DType, rows, in, out, act int) {
		add := func(ints []int, bias, aux, sums dtype.DType, result dtype.DType) {
			list = append(list, Call{Name: "GemmEpilogue", Ints: append([]int{1}, ints...), Types: []dtype.DType{d, d, bias, none, aux, result, sums}, Compute: "f32"})
		}
		kept, derived, aux := 0, 0, none
		if act == actGeluTanh {
			kept, derived, aux = 1, act+derivative, d
		}
		add([]int{rows, out, in, 0, 0, 0, 0, 0, act, kept, 0}, d, aux, none, d)
		add([]int{rows, out, in, 0, 1, 0, 0, 0, derived, 0, 0}, none, aux, none, d) // of the layer above, whose operands have these sizes
		add([]int{in, out, rows, 1, 0, 0, 0, 0, 0, 0, 2}, none, none, f, f)
	}
	for _, width := range []int{768, 2048} {
		layer(b, 32*1024, width, 3*width, actNone)
		layer(b, 32*1024, width, 4*width, actGeluTanh)
		layer(b, 32*1024, 4*width, width, actNone)
	}
	layer(f, 128, 512, 512, actRelu)
	return list
}
