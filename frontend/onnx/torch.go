package onnx

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// fxCall is the PyTorch operation that a node was made from, as the dynamo exporter records it:
// call_function[target=torch.ops.aten.linear.default](args = (%x, %p_w, %p_b), kwargs = {}).
type fxCall struct {
	name   string   // of its result in PyTorch's graph
	target string   // such as aten.linear.default
	args   []string // top-level arguments; placeholders keep their % sign
}

var fxTargetRE = regexp.MustCompile(`target=torch\.ops\.([\w.]+)\]\(args = \(`)

var fxNameRE = regexp.MustCompile(`^\s*%(\w+)`)

// parseFx reads the text of an fx node; anything unexpected gives the empty call.
func parseFx(text string) fxCall {
	m := fxTargetRE.FindStringSubmatchIndex(text)
	if m == nil {
		return fxCall{}
	}
	name := ""
	if f := fxNameRE.FindStringSubmatch(text); f != nil {
		name = f[1]
	}
	return fxCall{name: name, target: text[m[2]:m[3]], args: splitArgs(text[m[1]:])}
}

// splitArgs splits "a, [b, c], d), kwargs = …" at top-level commas up to the closing parenthesis.
func splitArgs(text string) []string {
	var args []string
	depth, start := 0, 0
	for i, c := range text {
		switch c {
		case '(', '[', '{':
			depth++
		case ']', '}':
			depth--
		case ')', ',':
			if c == ')' {
				depth--
			}
			if depth > 0 || c == ')' && depth == 0 {
				continue
			}
			if a := strings.TrimSpace(text[start:i]); a != "" {
				args = append(args, a)
			}
			if depth < 0 {
				return args
			}
			start = i + 1
		}
	}
	return args
}

// arg is argument i when it is a placeholder (without the % sign), else "".
func (c fxCall) arg(i int) string {
	if i >= len(c.args) || !strings.HasPrefix(c.args[i], "%") {
		return ""
	}
	return c.args[i][1:]
}

// is reports whether the call is of the named aten op in any overload.
func (c fxCall) is(names ...string) bool {
	for _, n := range names {
		if c.target == "aten."+n || strings.HasPrefix(c.target, "aten."+n+".") {
			return true
		}
	}
	return false
}

// torchInfo is what the dynamo exporter's metadata says of a whole model. It is empty for other exporters.
type torchInfo struct {
	// params and buffers map fx placeholder names (p_layers_0_weight) to PyTorch names (layers.0.weight).
	params, buffers map[string]string
	// persistent are the buffers that the module's state dict has.
	persistent map[string]bool
	// kinds maps initializer names to PARAMETER, BUFFER or CONSTANT_TENSOR.
	kinds map[string]string
	// from maps initializers that the exporter folded to the names of the tensors that it folded them from.
	from map[string][]string
}

var signatureRE = regexp.MustCompile(`(?m)^\s*(\w+): (PARAMETER|BUFFER|CONSTANT_TENSOR)\s+target='([^']+)'(?: persistent=(\w+))?`)

func readTorch(m *onnxpb.ModelProto) torchInfo {
	t := torchInfo{params: map[string]string{}, buffers: map[string]string{}, kinds: map[string]string{},
		from: map[string][]string{}, persistent: map[string]bool{}}
	sig := metaValue(m.MetadataProps, keySignature)
	if sig == "" {
		sig = metaValue(m.Graph.MetadataProps, keySignature)
	}
	for _, f := range signatureRE.FindAllStringSubmatch(sig, -1) {
		switch f[2] {
		case "PARAMETER":
			t.params[f[1]] = f[3]
			t.kinds[f[3]] = f[2]
		default:
			t.buffers[f[1]] = f[3]
			t.kinds[f[3]] = f[2]
			t.persistent[f[3]] = f[4] == "True"
		}
	}
	for _, v := range m.Graph.ValueInfo {
		if k := metaValue(v.MetadataProps, keyKind); k != "" {
			t.kinds[v.GetName()] = k
		}
		if from := metaValue(v.MetadataProps, keyFolded); from != "" {
			t.from[v.GetName()] = foldedFrom(from)
		}
	}
	return t
}

// known reports whether the model came with a PyTorch signature.
func (t torchInfo) known() bool { return len(t.params) > 0 }

// CompareTorch compares the names of tensors with those of the PyTorch module that the model was exported from, after
// Import: foreign are those that the module has no tensor of, missing the module's trained parameters without a tensor.
// Beside gives the second names of tied ones.
// The dynamo exporters record the module's names. TorchScript does not: there, names of its own form (onnx::MatMul_12)
// are foreign, and nothing is known to be missing.
func (m *Model) CompareTorch(names []string) (foreign, missing []string) {
	if m.roles != nil { // adapters are peft's
		for p := range m.roles.adapters() {
			names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == p.Name })
		}
	}
	if m.record != nil { // all of the module's that a graph needs are in the file
		for _, n := range names {
			if m.record.roles[n] == "" {
				foreign = append(foreign, n)
			}
		}
		return foreign, nil
	}
	if !m.torch.known() {
		for _, n := range names {
			if m.torchScript() && strings.Contains(n, "::") {
				foreign = append(foreign, n)
			}
		}
		return foreign, nil
	}
	has := map[string]bool{}
	for _, n := range names {
		has[n] = true
		if _, ok := m.torch.kinds[n]; !ok {
			foreign = append(foreign, n)
		}
	}
	for _, p := range m.Parameters() {
		has[p.Name] = true // one that is frozen is not exported and has not changed
	}
	for _, n := range m.torch.params {
		if !has[n] {
			missing = append(missing, n)
		}
	}
	slices.Sort(missing)
	return foreign, missing
}
