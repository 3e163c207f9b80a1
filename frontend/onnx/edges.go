package onnx

// Edge is a point at which a derivative does not exist, jumps or is not finite, or at which a value is out of range.
type Edge struct {
	Where string // the operator or flag, and the point
	What  string // what gtc does there
}

// Edges lists what happens at edges: it is PyTorch's behaviour of version 2.15, which tests hold (TestEdges in tests/onnx with
// PyTorch's numbers, TestUserRoles and TestRoleOrder in passes, TestAgainstTorch in passes/optimizer, and the tests of runtime/train for values out of range). docs/ops.md shows it.
var Edges = []Edge{
	{"Max, Min of two operands: equal elements", "each operand gets half of the gradient (torch.maximum)"},
	{"ReduceMax, ReduceMin: several greatest or least elements", "they share the gradient equally (torch.amax)"},
	{"MaxPool: equal elements in a window", "the first one gets the gradient"},
	{"TopK, sorting: equal elements", "the earlier one comes first, in both directions, and gets its place's gradient"},
	{"Relu, LeakyRelu, PRelu, ThresholdedRelu, Shrink at their corner", "the slope of the lower side: 0, alpha, the slope operand, 0, 0"},
	{"Elu, Selu, Celu at 0", "the slope of the exponential: alpha, gamma alpha, 1"},
	{"Clip (clamp, hardtanh, relu6), HardSigmoid at their ends", "0, as outside (PyTorch before 2.15 lets clamp's ends through)"},
	{"HardSwish at -3 and 3", "0 and 1"},
	{"Abs, Sign at 0", "0"},
	{"Floor, Ceil, Round, Sign", "0 everywhere"},
	{"Sqrt, Log, Reciprocal at 0; Asin, Acos, Acosh, Atanh at 1", "infinite"},
	{"ReduceL2, LpNormalization, LpPool, ReduceL1 of zeros", "0 (torch.linalg.vector_norm); sqrt(sum(x*x)) spelled out gives NaN there, also in PyTorch"},
	{"ReduceProd, CumProd with zeros among the elements", "the product of the other elements, exactly; 0 where two or more others are 0"},
	{"Pow with exponent 0; 1; 2 or more; between 0 and 1, at base 0", "0; 1; 0; infinite. The exponent's gradient at base 0 is 0"},
	{"Where: the branch not taken", "its gradient is 0 times its own derivative: NaN where that is infinite, as in PyTorch; bound the operand before Log, Sqrt or division"},
	{"ReduceLogSumExp, Softmax of -inf", "0 for that element; -inf in all of a row gives NaN"},
	{"Sigmoid, Tanh, Softplus, Mish far out", "0, 0, 0 or 1: nothing overflows"},
	{"Mod", "1 for the dividend, by fmod and by the divisor's sign alike"},
	{"Gather, GatherElements, GatherND, labels of cross_entropy and nll out of range", "an error at run time that names the sample, the tensor, the row and the value; no other memory is read"},
	{"OneHot: an index out of range", "a row of the off value, as ONNX says"},
	{"embedding with padding_idx (--padding-idx)", "the row's gradient is 0; weight decay still applies to it"},
	{"BatchNormalization with a frozen scale, mean or variance (--freeze)", "normalises by its running statistics, which stay as they are"},
	{"BatchNormalization in training form with one value for each channel", "refused, as in PyTorch: such a batch has no variance"},
	{"InstanceNormalization written as BatchNormalization over [1,N*C,…]", "each sample's own statistics; running ones take the mean over the samples"},
	{"--beta1 0, --beta2 0, --eps 0, --alpha 0, --momentum 0", "0, not the rule's default"},
}
