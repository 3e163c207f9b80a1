package model

import "slices"

// Operand is one input of one node.
type Operand struct {
	Node  *Node
	Index int
}

// WeightUse says why operand u marks a trained weight, or "".
func WeightUse(u Operand) string {
	switch u.Node.Op {
	case "MatMul", "Gemm", "com.microsoft.FusedMatMul", "com.microsoft.FusedGemm", "com.microsoft.GemmFastGelu", "com.microsoft.TransposeMatMul":
		return "an operand of a matrix product"
	case "Conv", "ConvTranspose", "DeformConv", "com.microsoft.FusedConv":
		return "the weight or bias of a convolution"
	case "LSTM", "GRU", "RNN":
		if u.Index <= 3 || u.Index == 7 {
			return "the weight or bias of a recurrent network"
		}
	case "Gather":
		if u.Index == 0 {
			return "a table of embeddings"
		}
	case "PRelu":
		return "the slope of a PRelu"
	case "QuantizeLinear", "com.microsoft.QuantizeLinear":
		if u.Index == 0 {
			return "a weight that is quantised where it is used"
		}
	}
	if slices.Contains(contribWeights[u.Node.Op], u.Index) {
		return "a weight of " + u.Node.Op
	}
	if NormPart(u) != "" {
		return "the scale or shift of a normalization"
	}
	return ""
}

// IsStatistic reports whether u is the mean or variance of a batch normalization.
func IsStatistic(u Operand) bool { return u.Node.Op == "BatchNormalization" && u.Index >= 3 }

// contribWeights lists the operands that mark a trained weight, for roles.
var contribWeights = map[string][]int{
	"com.microsoft.FusedMatMul": {0, 1}, "com.microsoft.TransposeMatMul": {0, 1}, "com.microsoft.FusedGemm": {0, 1, 2},
	"com.microsoft.FusedConv": {1, 2}, "com.microsoft.BiasGelu": {1}, "com.microsoft.FastGelu": {1}, "com.microsoft.BiasAdd": {1},
	"com.microsoft.BiasSplitGelu": {1}, "com.microsoft.GroupNorm": {1, 2}, "com.microsoft.SkipLayerNormalization": {2, 3, 4},
	"com.microsoft.SkipSimplifiedLayerNormalization": {2, 3}, "com.microsoft.EmbedLayerNormalization": {2, 3, 4, 5, 6},
	"com.microsoft.MultiHeadAttention": {3}, "com.microsoft.Attention": {1, 2}, "com.microsoft.GroupQueryAttention": {11, 14, 15},
	"CausalConvWithState": {1, 2}, "com.microsoft.CausalConvWithState": {1, 2}, "com.microsoft.LayerNormalization": {1, 2},
	"com.microsoft.SimplifiedLayerNormalization": {1}, "com.microsoft.RMSNormalization": {1},
}

// Input is the name of input i, "" when it is absent.
func (n *Node) Input(i int) string {
	if i < len(n.In) {
		return n.In[i]
	}
	return ""
}

// NormPart names what operand u is to a normalization: weight, bias, or "" when it is neither.
func NormPart(u Operand) string {
	switch u.Node.Op {
	case "LayerNormalization", "BatchNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization",
		"SimplifiedLayerNormalization", "com.microsoft.SimplifiedLayerNormalization", "com.microsoft.LayerNormalization", "com.microsoft.GroupNorm":
		return []string{"", "weight", "bias", "", ""}[min(u.Index, 4)]
	case "com.microsoft.SkipLayerNormalization":
		return []string{"", "", "weight", "bias", "skip.bias", ""}[min(u.Index, 5)]
	case "com.microsoft.SkipSimplifiedLayerNormalization":
		return []string{"", "", "weight", "bias", ""}[min(u.Index, 4)]
	}
	return ""
}
