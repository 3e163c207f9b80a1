package roles

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/internal/fold"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// fxOperand tells which placeholder of the recorded PyTorch call operand i of n is, and in which layout the
// node reads it. dims are the operand's. The table follows torch.onnx's decompositions of each aten op.
func fxOperand(n *model.Node, i int, dims []int) (string, layout) {
	c := n.Torch
	transB := n.Op == "Gemm" && n.Int("transB", 0) != 0
	switch n.Op {
	case "MatMul", "Gemm":
		switch {
		case c.Is("linear") && i == 1:
			if transB {
				return c.Arg(1), direct
			}
			return c.Arg(1), transposed
		case c.Is("linear") && i == 2:
			return c.Arg(2), direct
		case c.Is("addmm") && i == 1:
			if transB {
				return c.Arg(2), transposed
			}
			return c.Arg(2), direct
		case c.Is("addmm") && i == 2:
			return c.Arg(0), direct
		case c.Is("matmul", "mm", "bmm") && n.Op == "MatMul":
			return c.Arg(i), direct
		}
	case "Add", "Mul", "Sub", "Div":
		return fxPointwise(n, i, dims)
	case "LayerNormalization":
		if c.Is("layer_norm", "native_layer_norm") && i > 0 {
			return c.Arg(i + 1), direct
		}
	case "Conv", "ConvTranspose":
		if c.Is("conv1d", "conv2d", "conv3d", "convolution", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d") {
			return c.Arg(i), direct
		}
	case "BatchNormalization":
		if c.Is("batch_norm", "native_batch_norm", "_native_batch_norm_legit_functional", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training") {
			return c.Arg(i), direct
		}
	case "InstanceNormalization":
		if c.Is("instance_norm") {
			return c.Arg(i), direct
		}
	case "Gather":
		if c.Is("embedding") && i == 0 {
			return c.Arg(0), direct
		}
	case "GatherND":
		// The indexed dims stand first after a transpose, which the exporter folds; it moves nothing when they are the first ones.
		if c.Is("index") && i == 0 && len(c.Args) > 1 && leadingRE.MatchString(c.Args[1]) {
			return c.Arg(0), direct
		}
	case "PRelu":
		return c.Arg(i), direct
	}
	return "", direct
}

// leadingRE matches the list of aten.index's operands when no dim before an indexed one is whole.
var leadingRE = regexp.MustCompile(`^\[%\w+(, %\w+)*\]$`)

// fxPointwise is fxOperand for the scale and shift steps of decomposed calls.
func fxPointwise(n *model.Node, i int, dims []int) (string, layout) {
	c := n.Torch
	lay := direct
	if len(fold.Squeezed(dims)) == 1 && len(dims) > 1 {
		lay = flat
	}
	scale := n.Op == "Mul"
	switch {
	case c.Is("linear") && n.Op == "Add":
		return c.Arg(2), direct
	case c.Is("addmm") && n.Op == "Add":
		return c.Arg(0), direct
	case c.Is("group_norm") && scale, c.Is("layer_norm", "rms_norm") && scale:
		return c.Arg(2), lay
	case c.Is("group_norm", "layer_norm") && n.Op == "Add":
		return c.Arg(3), lay
	case c.Is("add", "add_", "mul", "mul_", "sub", "div"):
		return c.Arg(i), direct
	}
	return "", direct
}

// findLeftover lists PyTorch parameters that no recorded call mentions: what they computed was folded away.
func (r *Roles) findLeftover() {
	mentioned := map[string]bool{}
	for _, n := range r.m.Nodes {
		for _, a := range n.Torch.Args {
			for _, p := range placeholderRE.FindAllString(a, -1) {
				mentioned[p[1:]] = true
			}
		}
	}
	for placeholder, name := range r.m.Torch.Params {
		if !mentioned[placeholder] && r.m.Inits[name] == nil {
			r.leftover = append(r.leftover, name)
		}
	}
	slices.Sort(r.leftover)
}

var placeholderRE = regexp.MustCompile(`%\w+`)

var autoNameRE = regexp.MustCompile(`^(val_\d+|onnx::.*|t(_\d+)?|\d+|.*_output_\d+|.*/shape|(un)?squeeze(_\d+)?|expand(_\d+)?|` +
	`slice(_\d+)?|where(_\d+)?|embedding(_\d+)?|clone(_\d+)?|_inlfunc.*|.*_transposed?(_\d+)?|Constant.*|const.*)$`)

// AutoNamed reports whether an exporter made the name up, so that it says nothing about the tensor.
func AutoNamed(m *model.File, name string) bool {
	if m.Torch.Known() {
		return m.Torch.Kinds[name] == ""
	}
	return autoNameRE.MatchString(name)
}

// maxTable is the number of elements up to which a tensor's contents are looked at.
const maxTable = 1 << 22

// classify decides the role of initializer t from the PyTorch signature, or from its uses and contents.
func (r *Roles) classify(t *model.Tensor, uses []model.Operand) (role, reason string, err error) {
	switch {
	case slices.ContainsFunc(uses, model.IsStatistic):
		return RoleBuffer, ofStatistics, nil
	case r.m.Torch.Kinds[t.Name] != "PARAMETER" && slices.ContainsFunc(uses, r.becomesStatistic):
		return RoleBuffer, ofStatistics, nil
	case len(uses) == 0:
		return RoleConstant, "used by nothing", nil
	case allOf(uses, func(u model.Operand) bool { return isQuantScale(u) || r.scalesDynamic(u) }):
		return RoleConstant, "a scale or zero point of quantisation (--train it to learn the step size too)", nil
	}
	switch r.m.Torch.Kinds[t.Name] {
	case "PARAMETER":
		return RoleParameter, "a parameter in the PyTorch signature that the file carries", nil
	case "BUFFER":
		return RoleConstant, "a buffer in the PyTorch signature that nothing updates", nil
	case "CONSTANT_TENSOR":
		return RoleConstant, "a constant in the PyTorch signature that the file carries", nil
	}
	auto := AutoNamed(r.m, t.Name)
	if from, known := r.m.Torch.Origins(t.Name); known && auto && len(from) == 0 {
		return RoleConstant, "folded by the exporter from constants", nil
	} else if known && auto {
		return RoleParameter, "computed by the exporter from " + strings.Join(from, ", "), nil
	}
	if allOf(uses, isClassWeight) {
		return RoleConstant, "the weights of classes in a loss (--train it if it is a parameter)", nil
	}
	if t.Type.Elems() <= 1 && auto && !r.scalarBias(t, uses) {
		return RoleConstant, "a scalar", nil
	}
	if !auto && r.m.TorchScript() {
		if strings.HasSuffix(t.Name, ".running_mean") || strings.HasSuffix(t.Name, ".running_var") {
			return RoleBuffer, ofStatistics + ", by PyTorch's name", nil
		}
		if buffer := r.bufferBefore(t); buffer != "" {
			return RoleConstant, fmt.Sprintf("a buffer: in PyTorch's order it follows %q, a buffer of the same module", buffer), nil
		}
	}
	if slices.ContainsFunc(uses, isCarried) {
		if same, err := uniform(t); err != nil || same {
			return RoleConstant, "the initial state of a loop, equal everywhere", err
		}
	}
	if r.inputScaling(t, uses) {
		return RoleConstant, "scales the model's input (--train it if it is a parameter)", nil
	}
	for _, u := range uses {
		if what := model.WeightUse(u); what != "" && u.Node.Op != "Gather" && !(auto && isIdentityNorm(u)) {
			return RoleParameter, what, nil
		}
	}
	if what, err := looksFixed(t); err != nil || what != "" {
		return RoleConstant, what, err
	}
	if slices.ContainsFunc(uses, isInitialState) && (auto || !r.m.TorchScript()) {
		return RoleConstant, "the initial state of a recurrent network", nil
	}
	if auto && allOf(uses, isIdentityNorm) {
		return RoleConstant, "the identity scale or shift of a normalization by groups", nil
	}
	for _, u := range uses {
		if what := model.WeightUse(u); what != "" {
			return RoleParameter, what, nil
		}
	}
	return r.classifyRest(t, uses, auto)
}

// classifyRest handles tensors that are only added, multiplied, joined or reshaped.
func (r *Roles) classifyRest(t *model.Tensor, uses []model.Operand, auto bool) (string, string, error) {
	arithmetic := slices.ContainsFunc(uses, func(u model.Operand) bool {
		return computes[u.Node.Op] && (u.Index == 0 || u.Node.Op != "Pow" && u.Node.Op != "Pad")
	})
	op := uses[0].Node.Op
	switch {
	case !auto && r.m.TorchScript():
		return RoleParameter, "PyTorch's name for a tensor of the model, and it looks like neither a mask nor a table", nil
	case !arithmetic:
		return RoleConstant, "only used by " + op, nil
	case r.m.Torch.Known() && len(r.lostNames(r.leftover)) == 0:
		return RoleConstant, "the file accounts for every parameter in its PyTorch signature without it", nil
	case r.m.Torch.Known():
		why := fmt.Sprintf("used by %s; the file has no tensor of the PyTorch parameter %s, this may be part of it", op,
			strings.Join(r.lostNames(r.leftover), ", "))
		r.m.Warn("%q is trained: %s (--freeze %[1]q if it is a constant)", t.Name, why)
		return RoleParameter, why, nil
	case r.scalarBias(t, uses):
		return RoleParameter, "the bias of a layer with one output", nil
	case t.Type.Elems() <= 1 && !strings.Contains(t.Name, "."):
		return RoleConstant, "a scalar", nil
	case auto && len(t.Type.Dims) == 0:
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
func looksFixed(t *model.Tensor) (string, error) {
	if t.Type.Elems() > maxTable || t.Absent {
		return "", nil
	}
	a, err := t.Array()
	if err != nil {
		return "", err
	}
	return tableLike(a), nil
}

// isClassWeight reports whether u weights the classes of a loss. PyTorch has no gradient for these, so they are buffers.
func isClassWeight(u model.Operand) bool {
	return u.Index == 2 && (u.Node.Op == "SoftmaxCrossEntropyLoss" || u.Node.Op == "NegativeLogLikelihoodLoss")
}

// moduleBy is the module that a tensor's name says it belongs to.
func moduleBy(name string) string { return path.Dir(strings.ReplaceAll(name, ".", "/")) }

// bufferBefore names a buffer of t's module that PyTorch lists before t: TorchScript files keep the order of state_dict,
// in which a module's parameters come before its buffers. Integers, running statistics, weights of classes, masks and tables
// are buffers.
func (r *Roles) bufferBefore(t *model.Tensor) string {
	if r.modules == nil {
		r.modules = map[string][]*model.Tensor{}
		for _, o := range r.m.InitList {
			if o.Bad == nil && !AutoNamed(r.m, o.Name) {
				r.modules[moduleBy(o.Name)] = append(r.modules[moduleBy(o.Name)], o)
			}
		}
	}
	for _, o := range r.modules[moduleBy(t.Name)] {
		if o == t {
			break
		}
		if !o.Type.DType.IsFloat() || slices.ContainsFunc(r.Uses[o.Name], model.IsStatistic) || slices.ContainsFunc(r.Uses[o.Name], isClassWeight) {
			return o.Name
		}
		weight := slices.ContainsFunc(r.Uses[o.Name], func(u model.Operand) bool { return model.WeightUse(u) != "" })
		if what, err := looksFixed(o); err == nil && what != "" && !weight {
			return o.Name
		}
	}
	return ""
}

// inputScaling reports whether a converter's tensor is subtracted from the model's input or divides it: the mean and
// deviation of the data that a preprocessing layer holds. PyTorch's files tell parameters from buffers.
func (r *Roles) inputScaling(t *model.Tensor, uses []model.Operand) bool {
	if r.m.TorchScript() || r.m.Torch.Known() || len(uses) == 0 {
		return false
	}
	for _, u := range uses {
		if u.Node.Op != "Sub" && u.Node.Op != "Div" || u.Index != 1 {
			return false
		}
		name := u.Node.In[0]
		for n := r.maker(name); n != nil; n = r.maker(name) {
			if !setOf("Transpose Cast Sub Div Mul Identity Reshape")[n.Op] || n.Input(0) == "" {
				return false
			}
			name = n.Input(0)
		}
		if !slices.ContainsFunc(r.m.InputInfos, func(in *onnxpb.ValueInfoProto) bool { return in.GetName() == name }) {
			return false
		}
	}
	return true
}

func allOf(uses []model.Operand, f func(model.Operand) bool) bool {
	return !slices.ContainsFunc(uses, func(u model.Operand) bool { return !f(u) })
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

func isQuantScale(u model.Operand) bool {
	if u.Node.Op == "com.microsoft.QLinearConcat" {
		return u.Index%3 != 2 // Y_scale, Y_zero_point, then a part, its scale, its zero point, …
	}
	return slices.Contains(quantScales[u.Node.Op], u.Index)
}

// scalesDynamic reports whether u is multiplied with the scale that a DynamicQuantizeLinear finds: it is the scale of a
// weight then.
func (r *Roles) scalesDynamic(u model.Operand) bool {
	if u.Node.Op != "Mul" || len(u.Node.In) != 2 {
		return false
	}
	other := u.Node.In[1-u.Index]
	p := r.maker(other)
	return p != nil && p.Op == "DynamicQuantizeLinear" && len(p.Out) > 1 && p.Out[1] == other
}

func isInitialState(u model.Operand) bool {
	return (u.Node.Op == "LSTM" || u.Node.Op == "GRU" || u.Node.Op == "RNN") && (u.Index == 5 || u.Index == 6)
}

// isCarried reports the first value of what a loop carries from step to step.
func isCarried(u model.Operand) bool {
	switch u.Node.Op {
	case "Loop":
		return u.Index >= 2
	case "Scan":
		return u.Index < len(u.Node.In)-u.Node.Int("num_scan_inputs", 0)
	}
	return false
}

func isIdentityNorm(u model.Operand) bool { return u.Node.Op == "InstanceNormalization" }

// uniform reports whether all elements of t are known and equal.
func uniform(t *model.Tensor) (bool, error) {
	if t.Absent {
		return false, nil
	}
	c, err := t.IR()
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

// scalarBias reports whether one-element tensor t is the bias of a layer with a single output: it is added to the product
// with a weight that has one column or filter.
func (r *Roles) scalarBias(t *model.Tensor, uses []model.Operand) bool {
	if len(t.Type.Dims) == 0 || t.Type.Elems() != 1 {
		return false
	}
	for _, u := range uses {
		if u.Node.Op != "Add" || len(u.Node.In) != 2 {
			continue
		}
		p := r.maker(u.Node.In[1-u.Index])
		if p == nil {
			continue
		}
		w := r.m.Inits[p.Input(1)]
		if w == nil || len(w.Type.Dims) < 2 {
			continue
		}
		last := w.Type.Dims[len(w.Type.Dims)-1]
		if p.Op == "Gemm" && p.Int("transB", 0) != 0 || p.Op == "Conv" {
			last = w.Type.Dims[0]
		}
		if (p.Op == "MatMul" || p.Op == "Gemm" || p.Op == "Conv") && last == 1 {
			return true
		}
	}
	return false
}

// maker is the node that makes a value, nil for inputs and initializers.
func (r *Roles) maker(name string) *model.Node {
	if r.makers == nil {
		r.makers = map[string]*model.Node{}
		for _, n := range r.m.Nodes {
			for _, o := range n.Out {
				r.makers[o] = n
			}
		}
	}
	return r.makers[name]
}
