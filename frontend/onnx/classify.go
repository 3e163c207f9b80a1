package onnx

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// fxOperand tells which placeholder of the recorded PyTorch call operand i of n is, and in which layout the
// node reads it. dims are the operand's. The table follows torch.onnx's decompositions of each aten op.
func fxOperand(n *node, i int, dims []int) (string, layout) {
	c := n.fx
	transB := n.op == "Gemm" && n.int("transB", 0) != 0
	switch n.op {
	case "MatMul", "Gemm":
		switch {
		case c.is("linear") && i == 1:
			if transB {
				return c.arg(1), direct
			}
			return c.arg(1), transposed
		case c.is("linear") && i == 2:
			return c.arg(2), direct
		case c.is("addmm") && i == 1:
			if transB {
				return c.arg(2), transposed
			}
			return c.arg(2), direct
		case c.is("addmm") && i == 2:
			return c.arg(0), direct
		case c.is("matmul", "mm", "bmm") && n.op == "MatMul":
			return c.arg(i), direct
		}
	case "Add", "Mul", "Sub", "Div":
		return fxPointwise(n, i, dims)
	case "LayerNormalization":
		if c.is("layer_norm", "native_layer_norm") && i > 0 {
			return c.arg(i + 1), direct
		}
	case "Conv", "ConvTranspose":
		if c.is("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d") {
			return c.arg(i), direct
		}
	case "BatchNormalization":
		if c.is("batch_norm", "native_batch_norm", "_native_batch_norm_legit_functional", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training") {
			return c.arg(i), direct
		}
	case "InstanceNormalization":
		if c.is("instance_norm") {
			return c.arg(i), direct
		}
	case "Gather":
		if c.is("embedding") && i == 0 {
			return c.arg(0), direct
		}
	case "GatherND":
		// The indexed dims stand first after a transpose, which the exporter folds; it moves nothing when they are the first ones.
		if c.is("index") && i == 0 && len(c.args) > 1 && leadingRE.MatchString(c.args[1]) {
			return c.arg(0), direct
		}
	case "PRelu":
		return c.arg(i), direct
	}
	return "", direct
}

// leadingRE matches the list of aten.index's operands when no dim before an indexed one is whole.
var leadingRE = regexp.MustCompile(`^\[%\w+(, %\w+)*\]$`)

// fxPointwise is fxOperand for the scale and shift steps of decomposed calls.
func fxPointwise(n *node, i int, dims []int) (string, layout) {
	c := n.fx
	lay := direct
	if len(squeezed(dims)) == 1 && len(dims) > 1 {
		lay = flat
	}
	scale := n.op == "Mul"
	switch {
	case c.is("linear") && n.op == "Add":
		return c.arg(2), direct
	case c.is("addmm") && n.op == "Add":
		return c.arg(0), direct
	case c.is("group_norm") && scale, c.is("layer_norm", "rms_norm") && scale:
		return c.arg(2), lay
	case c.is("group_norm", "layer_norm") && n.op == "Add":
		return c.arg(3), lay
	case c.is("add", "add_", "mul", "mul_", "sub", "div"):
		return c.arg(i), direct
	}
	return "", direct
}

// findLeftover lists PyTorch parameters that no recorded call mentions: what they computed was folded away.
func (r *roles) findLeftover() {
	mentioned := map[string]bool{}
	for _, n := range r.m.nodes {
		for _, a := range n.fx.args {
			for _, p := range placeholderRE.FindAllString(a, -1) {
				mentioned[p[1:]] = true
			}
		}
	}
	for placeholder, name := range r.m.torch.params {
		if !mentioned[placeholder] && r.m.inits[name] == nil {
			r.leftover = append(r.leftover, name)
		}
	}
	slices.Sort(r.leftover)
}

var placeholderRE = regexp.MustCompile(`%\w+`)

var autoNameRE = regexp.MustCompile(`^(val_\d+|onnx::.*|t(_\d+)?|\d+|.*_output_\d+|.*/shape|(un)?squeeze(_\d+)?|expand(_\d+)?|` +
	`slice(_\d+)?|where(_\d+)?|embedding(_\d+)?|clone(_\d+)?|_inlfunc.*|.*_transposed?(_\d+)?|Constant.*|const.*)$`)

// autoNamed reports whether an exporter made the name up, so that it says nothing about the tensor.
func (m *Model) autoNamed(name string) bool {
	if m.torch.known() {
		return m.torch.kinds[name] == ""
	}
	return autoNameRE.MatchString(name)
}

// torchScript reports whether PyTorch's TorchScript exporter wrote the file: tensors with names of their own are then
// parameters and buffers, scalars too, and all others have names that the exporter made up.
func (m *Model) torchScript() bool { return m.Proto.GetProducerName() == "pytorch" && !m.torch.known() }

// maxTable is the number of elements up to which a tensor's contents are looked at.
const maxTable = 1 << 22

// classify decides the role of initializer t from the PyTorch signature, or from its uses and contents.
func (r *roles) classify(t *tensor, uses []operand) (role, reason string, err error) {
	switch {
	case slices.ContainsFunc(uses, isStatistic):
		return RoleBuffer, ofStatistics, nil
	case r.m.torch.kinds[t.name] != "PARAMETER" && slices.ContainsFunc(uses, r.becomesStatistic):
		return RoleBuffer, ofStatistics, nil
	case len(uses) == 0:
		return RoleConstant, "used by nothing", nil
	case allOf(uses, func(u operand) bool { return isQuantScale(u) || r.scalesDynamic(u) }):
		return RoleConstant, "a scale or zero point of quantisation (--train it to learn the step size too)", nil
	}
	switch r.m.torch.kinds[t.name] {
	case "PARAMETER":
		return RoleParameter, "a parameter in the PyTorch signature that the file carries", nil
	case "BUFFER":
		return RoleConstant, "a buffer in the PyTorch signature that nothing updates", nil
	case "CONSTANT_TENSOR":
		return RoleConstant, "a constant in the PyTorch signature that the file carries", nil
	}
	auto := r.m.autoNamed(t.name)
	if from, known := r.m.torch.origins(t.name); known && auto && len(from) == 0 {
		return RoleConstant, "folded by the exporter from constants", nil
	} else if known && auto {
		return RoleParameter, "computed by the exporter from " + strings.Join(from, ", "), nil
	}
	if allOf(uses, isClassWeight) {
		return RoleConstant, "the weights of classes in a loss (--train it if it is a parameter)", nil
	}
	if t.typ.Elems() <= 1 && auto && !r.scalarBias(t, uses) {
		return RoleConstant, "a scalar", nil
	}
	if !auto && r.m.torchScript() {
		if strings.HasSuffix(t.name, ".running_mean") || strings.HasSuffix(t.name, ".running_var") {
			return RoleBuffer, ofStatistics + ", by PyTorch's name", nil
		}
		if buffer := r.bufferBefore(t); buffer != "" {
			return RoleConstant, fmt.Sprintf("a buffer: in PyTorch's order it follows %q, a buffer of the same module", buffer), nil
		}
	}
	if slices.ContainsFunc(uses, isCarried) {
		if same, err := t.uniform(); err != nil || same {
			return RoleConstant, "the initial state of a loop, equal everywhere", err
		}
	}
	if r.inputScaling(t, uses) {
		return RoleConstant, "scales the model's input (--train it if it is a parameter)", nil
	}
	for _, u := range uses {
		if what := weightUse(u); what != "" && u.n.op != "Gather" && !(auto && isIdentityNorm(u)) {
			return RoleParameter, what, nil
		}
	}
	if what, err := t.looksFixed(); err != nil || what != "" {
		return RoleConstant, what, err
	}
	if slices.ContainsFunc(uses, isInitialState) && (auto || !r.m.torchScript()) {
		return RoleConstant, "the initial state of a recurrent network", nil
	}
	if auto && allOf(uses, isIdentityNorm) {
		return RoleConstant, "the identity scale or shift of a normalization by groups", nil
	}
	for _, u := range uses {
		if what := weightUse(u); what != "" {
			return RoleParameter, what, nil
		}
	}
	return r.classifyRest(t, uses, auto)
}

// classifyRest handles tensors that are only added, multiplied, joined or reshaped.
func (r *roles) classifyRest(t *tensor, uses []operand, auto bool) (string, string, error) {
	arithmetic := slices.ContainsFunc(uses, func(u operand) bool {
		return computes[u.n.op] && (u.i == 0 || u.n.op != "Pow" && u.n.op != "Pad")
	})
	op := uses[0].n.op
	switch {
	case !auto && r.m.torchScript():
		return RoleParameter, "PyTorch's name for a tensor of the model, and it looks like neither a mask nor a table", nil
	case !arithmetic:
		return RoleConstant, "only used by " + op, nil
	case r.m.torch.known() && len(r.lostNames(r.leftover)) == 0:
		return RoleConstant, "the file accounts for every parameter in its PyTorch signature without it", nil
	case r.m.torch.known():
		why := fmt.Sprintf("used by %s; the file has no tensor of the PyTorch parameter %s, this may be part of it", op,
			strings.Join(r.lostNames(r.leftover), ", "))
		r.m.warn("%q is trained: %s (--freeze %[1]q if it is a constant)", t.name, why)
		return RoleParameter, why, nil
	case r.scalarBias(t, uses):
		return RoleParameter, "the bias of a layer with one output", nil
	case t.typ.Elems() <= 1 && !strings.Contains(t.name, "."):
		return RoleConstant, "a scalar", nil
	case auto && len(t.typ.Dims) == 0:
		return RoleConstant, "a scalar", nil
	}
	return RoleParameter, "a float tensor used by " + op + " that looks like neither a mask nor a table", nil
}

// computes are the operators whose float operands may be trained, beside those that mark weights. Operands of others
// (the scales of Resize, bounds of Clip, a value to fill with) are part of the program.
var computes = setOf("Add Sub Mul Div Sum Mean Max Min Pow Concat Gather GatherND Slice Split Expand Tile Transpose Reshape Flatten " +
	"Unsqueeze Squeeze Cast Identity Pad PRelu Gemm LSTM GRU RNN Einsum Where Neg Exp Log Sqrt Reciprocal Softplus Sigmoid Tanh Abs " +
	"Relu Softmax ReduceSum ReduceMean ReduceL2 ReduceSumSquare If Loop Scan LpNormalization " +
	"com.microsoft.BiasAdd com.microsoft.BiasGelu com.microsoft.FastGelu com.microsoft.BiasSplitGelu com.microsoft.Attention " +
	"com.microsoft.MultiHeadAttention com.microsoft.PackedAttention com.microsoft.EmbedLayerNormalization com.microsoft.GatedRelativePositionBias")

func setOf(words string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(words) {
		out[w] = true
	}
	return out
}

// looksFixed tells by its contents that t is never trained; "" when it may be.
func (t *tensor) looksFixed() (string, error) {
	if t.typ.Elems() > maxTable || t.absent {
		return "", nil
	}
	a, err := t.array()
	if err != nil {
		return "", err
	}
	return tableLike(a), nil
}

// isClassWeight reports whether u weights the classes of a loss. PyTorch has no gradient for these, so they are buffers.
func isClassWeight(u operand) bool {
	return u.i == 2 && (u.n.op == "SoftmaxCrossEntropyLoss" || u.n.op == "NegativeLogLikelihoodLoss")
}

// moduleBy is the module that a tensor's name says it belongs to.
func moduleBy(name string) string { return path.Dir(strings.ReplaceAll(name, ".", "/")) }

// bufferBefore names a buffer of t's module that PyTorch lists before t: TorchScript files keep the order of state_dict,
// in which a module's parameters come before its buffers. Integers, running statistics, weights of classes, masks and tables
// are buffers.
func (r *roles) bufferBefore(t *tensor) string {
	if r.modules == nil {
		r.modules = map[string][]*tensor{}
		for _, o := range r.m.initList {
			if o.bad == nil && !r.m.autoNamed(o.name) {
				r.modules[moduleBy(o.name)] = append(r.modules[moduleBy(o.name)], o)
			}
		}
	}
	for _, o := range r.modules[moduleBy(t.name)] {
		if o == t {
			break
		}
		if !o.typ.DType.IsFloat() || slices.ContainsFunc(r.uses[o.name], isStatistic) || slices.ContainsFunc(r.uses[o.name], isClassWeight) {
			return o.name
		}
		weight := slices.ContainsFunc(r.uses[o.name], func(u operand) bool { return weightUse(u) != "" })
		if what, err := o.looksFixed(); err == nil && what != "" && !weight {
			return o.name
		}
	}
	return ""
}

// inputScaling reports whether a converter's tensor is subtracted from the model's input or divides it: the mean and
// deviation of the data that a preprocessing layer holds. PyTorch's files tell parameters from buffers.
func (r *roles) inputScaling(t *tensor, uses []operand) bool {
	if r.m.torchScript() || r.m.torch.known() || len(uses) == 0 {
		return false
	}
	for _, u := range uses {
		if u.n.op != "Sub" && u.n.op != "Div" || u.i != 1 {
			return false
		}
		name := u.n.in[0]
		for n := r.maker(name); n != nil; n = r.maker(name) {
			if !setOf("Transpose Cast Sub Div Mul Identity Reshape")[n.op] || n.input(0) == "" {
				return false
			}
			name = n.input(0)
		}
		if !slices.ContainsFunc(r.m.inputs, func(in *onnxpb.ValueInfoProto) bool { return in.GetName() == name }) {
			return false
		}
	}
	return true
}

func allOf(uses []operand, f func(operand) bool) bool {
	return !slices.ContainsFunc(uses, func(u operand) bool { return !f(u) })
}

// quantScales lists the operands that are scales or zero points, and so no weights.
var quantScales = map[string][]int{
	"QuantizeLinear": {1, 2}, "DequantizeLinear": {1, 2}, "com.microsoft.QuantizeLinear": {1, 2},
	"com.microsoft.DequantizeLinear": {1, 2}, "QLinearMatMul": {1, 2, 4, 5, 6, 7}, "QLinearConv": {1, 2, 4, 5, 6, 7},
	"com.microsoft.QLinearAdd": {1, 2, 4, 5, 6, 7}, "com.microsoft.QLinearMul": {1, 2, 4, 5, 6, 7},
	"com.microsoft.QLinearSigmoid": {1, 2, 3, 4}, "com.microsoft.QLinearLeakyRelu": {1, 2, 3, 4},
	"com.microsoft.QLinearSoftmax": {1, 2, 3, 4}, "com.microsoft.QLinearReduceMean": {1, 2, 3, 4},
	"com.microsoft.QLinearAveragePool": {1, 2, 3, 4}, "com.microsoft.QLinearGlobalAveragePool": {1, 2, 3, 4},
	"com.microsoft.QGemm": {1, 2, 4, 5, 7, 8}, "com.microsoft.MatMulIntegerToFloat": {2, 3, 4, 5},
	"com.microsoft.DynamicQuantizeMatMul": {2, 3},
	"MatMulInteger":                       {2, 3}, "ConvInteger": {2, 3}, "com.microsoft.MatMulNBits": {2, 3},
}

func isQuantScale(u operand) bool {
	if u.n.op == "com.microsoft.QLinearConcat" {
		return u.i%3 != 2 // Y_scale, Y_zero_point, then a part, its scale, its zero point, …
	}
	return slices.Contains(quantScales[u.n.op], u.i)
}

// scalesDynamic reports whether u is multiplied with the scale that a DynamicQuantizeLinear finds: it is the scale of a
// weight then.
func (r *roles) scalesDynamic(u operand) bool {
	if u.n.op != "Mul" || len(u.n.in) != 2 {
		return false
	}
	other := u.n.in[1-u.i]
	p := r.maker(other)
	return p != nil && p.op == "DynamicQuantizeLinear" && len(p.out) > 1 && p.out[1] == other
}

func isInitialState(u operand) bool {
	return (u.n.op == "LSTM" || u.n.op == "GRU" || u.n.op == "RNN") && (u.i == 5 || u.i == 6)
}

// isCarried reports the first value of what a loop carries from step to step.
func isCarried(u operand) bool {
	switch u.n.op {
	case "Loop":
		return u.i >= 2
	case "Scan":
		return u.i < len(u.n.in)-u.n.int("num_scan_inputs", 0)
	}
	return false
}

func isIdentityNorm(u operand) bool { return u.n.op == "InstanceNormalization" }

// weightUse says why operand u marks a trained weight, or "".
func weightUse(u operand) string {
	switch u.n.op {
	case "MatMul", "Gemm", "com.microsoft.FusedMatMul", "com.microsoft.FusedGemm", "com.microsoft.GemmFastGelu", "com.microsoft.TransposeMatMul":
		return "an operand of a matrix product"
	case "Conv", "ConvTranspose", "DeformConv", "com.microsoft.FusedConv":
		return "the weight or bias of a convolution"
	case "LSTM", "GRU", "RNN":
		if u.i <= 3 || u.i == 7 {
			return "the weight or bias of a recurrent network"
		}
	case "Gather":
		if u.i == 0 {
			return "a table of embeddings"
		}
	case "PRelu":
		return "the slope of a PRelu"
	case "QuantizeLinear", "com.microsoft.QuantizeLinear":
		if u.i == 0 {
			return "a weight that is quantised where it is used"
		}
	}
	if slices.Contains(contribWeights[u.n.op], u.i) {
		return "a weight of " + u.n.op
	}
	if normPart(u) != "" {
		return "the scale or shift of a normalization"
	}
	return ""
}

// array widens the tensor for inspection and host evaluation.
func (t *tensor) array() (*ir.Array, error) {
	c, err := t.ir()
	if err != nil {
		return nil, err
	}
	return c.Array(), nil
}

// uniform reports whether all elements of t are known and equal.
func (t *tensor) uniform() (bool, error) {
	if t.absent {
		return false, nil
	}
	c, err := t.ir()
	if err != nil {
		return false, err
	}
	_, same := c.Uniform()
	return same, nil
}

// tableLike recognizes by content what is never trained: attention masks and sine or cosine tables.
func tableLike(a *ir.Array) string {
	d := a.Type.Dims
	if len(d) < 2 || len(a.F) < 4 {
		return ""
	}
	low, other := 0, 0
	for _, x := range a.F {
		switch {
		case math.IsInf(x, 0) || math.IsNaN(x) || x <= -1e4:
			low++
		case x != 0:
			other++
		}
	}
	if low > 0 && other == 0 {
		return "an additive mask: zeros and very negative values"
	}
	if low == 0 && binaryMask(a) {
		return "a mask of zeros and ones"
	}
	if rotary(a) {
		return "a table of sines or cosines of position"
	}
	return ""
}

// binaryMask reports a matrix of zeros and ones in which both occur.
func binaryMask(a *ir.Array) bool {
	zeros, ones := 0, 0
	for _, x := range a.F {
		switch x {
		case 0:
			zeros++
		case 1:
			ones++
		default:
			return false
		}
	}
	return zeros > 0 && ones > 0
}

// rotary reports a table whose columns are sin(p*w) or cos(p*w) for positions p = 0, 1, 2, … : they start at 0
// or 1 and obey x[p+1] + x[p-1] = 2 cos(w) x[p].
func rotary(a *ir.Array) bool {
	d := a.Type.Dims
	cols, rows := d[len(d)-1], d[len(d)-2]
	if rows < 4 || cols < 2 || ir.Product(d[:len(d)-2]) != 1 {
		return false
	}
	moved := false
	for j := range cols {
		at := func(p int) float64 { return a.F[p*cols+j] }
		first := at(0)
		if first != 0 && first != 1 || math.Abs(at(1)) > 1 {
			return false
		}
		moved = moved || at(1) != first
		w := math.Asin(at(1))
		if first == 1 {
			w = math.Acos(at(1))
		}
		step := 2 * math.Cos(w)
		for p := 1; p+1 < rows; p++ {
			if math.Abs(at(p+1)+at(p-1)-step*at(p)) > 1e-3 {
				return false
			}
		}
	}
	return moved
}
