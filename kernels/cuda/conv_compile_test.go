package cuda

import (
	"testing"

	"github.com/gtc-compiler/gtc/ir/dtype"
)

// resnet are convolutions of ResNet-50 and of MobileNet at 224 x 224: n, c, h, w, o, kh, kw, oh, ow, pads, strides, dilations, groups.
var resnet = [][]int{
	{256, 3, 224, 224, 64, 7, 7, 112, 112, 3, 3, 2, 2, 1, 1, 1},
	{256, 64, 56, 56, 64, 3, 3, 56, 56, 1, 1, 1, 1, 1, 1, 1},
	{256, 64, 56, 56, 256, 1, 1, 56, 56, 0, 0, 1, 1, 1, 1, 1},
	{256, 128, 56, 56, 128, 3, 3, 28, 28, 1, 1, 2, 2, 1, 1, 1},
	{256, 1024, 14, 14, 2048, 1, 1, 7, 7, 0, 0, 2, 2, 1, 1, 1},
	{256, 512, 7, 7, 512, 3, 3, 7, 7, 1, 1, 1, 1, 1, 1, 1},
	{256, 512, 7, 7, 2048, 1, 1, 7, 7, 0, 0, 1, 1, 1, 1, 1},
	{256, 96, 112, 112, 96, 3, 3, 56, 56, 1, 1, 2, 2, 1, 1, 96},
	{32, 256, 14, 14, 256, 3, 3, 14, 14, 1, 1, 1, 1, 1, 1, 32},
}

// convCalls are the three calls of a convolution with operands of type d and, of the gradient by the weight, a result of f32.
func convCalls(ints []int, d dtype.DType, compute string) []Call {
	return []Call{
		{Name: "ConvFwd", Types: []dtype.DType{d, d, dtype.Invalid, d}, Ints: ints, Compute: compute},
		{Name: "ConvBwdData", Types: []dtype.DType{d, d, d}, Ints: ints, Compute: compute},
		{Name: "ConvBwdWeight", Types: []dtype.DType{d, d, dtype.F32}, Ints: ints, Compute: compute},
	}
}

func TestConvolutionsCompile(t *testing.T) {
	var calls []Call
	calls = append(calls, convCalls(resnet[3], dtype.BF16, "f32")...)
	calls = append(calls, convCalls(resnet[1], dtype.F32, "f32")[:2]...)
	calls = append(calls, convCalls(resnet[8], dtype.F32, "tf32")[2], convCalls(resnet[7], dtype.F16, "f32")[0])
	compiles(t, calls)
}
