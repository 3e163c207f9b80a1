package model

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// fxCall is the PyTorch operation that a node was made from, as the dynamo exporter records it:
// call_function[target=torch.ops.aten.linear.default](args = (%x, %p_w, %p_b), kwargs = {}).
type fxCall struct {
	Name   string   // of its result in PyTorch's graph
	Target string   // such as aten.linear.default
	Args   []string // top-level arguments; placeholders keep their % sign
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
	return fxCall{Name: name, Target: text[m[2]:m[3]], Args: splitArgs(text[m[1]:])}
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

// Arg is argument i when it is a placeholder (without the % sign), else "".
func (c fxCall) Arg(i int) string {
	if i >= len(c.Args) || !strings.HasPrefix(c.Args[i], "%") {
		return ""
	}
	return c.Args[i][1:]
}

// Is reports whether the call is of the named aten op in any overload.
func (c fxCall) Is(names ...string) bool {
	for _, n := range names {
		if c.Target == "aten."+n || strings.HasPrefix(c.Target, "aten."+n+".") {
			return true
		}
	}
	return false
}

// torchInfo is what the dynamo exporter's metadata says of a whole model. It is empty for other exporters.
type torchInfo struct {
	// params and buffers map fx placeholder names (p_layers_0_weight) to PyTorch names (layers.0.weight).
	Params, Buffers map[string]string
	// persistent are the buffers that the module's state dict has.
	Persistent map[string]bool
	// kinds maps initializer names to PARAMETER, BUFFER or CONSTANT_TENSOR.
	Kinds map[string]string
	// from maps initializers that the exporter folded to the names of the tensors that it folded them from.
	From map[string][]string
}

var signatureRE = regexp.MustCompile(`(?m)^\s*(\w+): (PARAMETER|BUFFER|CONSTANT_TENSOR)\s+target='([^']+)'(?: persistent=(\w+))?`)

func readTorch(m *onnxpb.ModelProto) torchInfo {
	t := torchInfo{Params: map[string]string{}, Buffers: map[string]string{}, Kinds: map[string]string{},
		From: map[string][]string{}, Persistent: map[string]bool{}}
	sig := MetaValue(m.MetadataProps, KeySignature)
	if sig == "" {
		sig = MetaValue(m.Graph.MetadataProps, KeySignature)
	}
	for _, f := range signatureRE.FindAllStringSubmatch(sig, -1) {
		switch f[2] {
		case "PARAMETER":
			t.Params[f[1]] = f[3]
			t.Kinds[f[3]] = f[2]
		default:
			t.Buffers[f[1]] = f[3]
			t.Kinds[f[3]] = f[2]
			t.Persistent[f[3]] = f[4] == "True"
		}
	}
	for _, v := range m.Graph.ValueInfo {
		if k := MetaValue(v.MetadataProps, keyKind); k != "" {
			t.Kinds[v.GetName()] = k
		}
		if from := MetaValue(v.MetadataProps, keyFolded); from != "" {
			t.From[v.GetName()] = foldedFrom(from)
		}
	}
	return t
}

// Known reports whether the model came with a PyTorch signature.
func (t torchInfo) Known() bool { return len(t.Params) > 0 }

// foldedFrom parses the record "['a', 'b']".
func foldedFrom(text string) []string {
	var out []string
	for _, f := range foldedRE.FindAllStringSubmatch(text, -1) {
		out = append(out, f[1])
	}
	return out
}

// TorchScript reports whether PyTorch's TorchScript exporter wrote the file: tensors with names of their own are then
// parameters and buffers, scalars too, and all others have names that the exporter made up.
func (m *File) TorchScript() bool { return m.Proto.GetProducerName() == "pytorch" && !m.Torch.Known() }

// Origins lists the PyTorch parameters that the named tensor was folded from; known is false without a record.
func (t torchInfo) Origins(name string) (params []string, known bool) {
	from, known := t.From[name]
	for _, f := range from {
		if f = t.InSignature(f); t.Kinds[f] == "PARAMETER" {
			params = append(params, f)
		}
	}
	return params, known
}

// InSignature is the name of a folded tensor as the signature has it: tools that rename what a wrapping module made
// ("model.x" to "x") leave the record of folding as it was.
func (t torchInfo) InSignature(name string) string {
	if _, tail, ok := strings.Cut(name, "."); ok && t.Kinds[name] == "" && t.Kinds[tail] != "" {
		return tail
	}
	return name
}

// Moved reports whether the tensor called name was folded by moving elements alone, lookup whether rows were taken.
func (t torchInfo) Moved(name string) (moved, lookup bool) {
	moved = Placing.MatchString(name)
	for _, f := range append(slices.Clone(t.From[name]), name) {
		lookup = lookup || lookups.MatchString(f)
		if t.Kinds[t.InSignature(f)] == "" && !Placing.MatchString(f) && !PlainNames.MatchString(f) {
			moved = false
		}
	}
	return moved || lookup, lookup
}

// ModuleOf is the name of the module that holds the parameter name; "" for the outermost one.
func ModuleOf(name string) string { return name[:max(strings.LastIndexByte(name, '.'), 0)] }

var foldedRE = regexp.MustCompile(`'([^']*)'`)

var (
	// Placing are PyTorch calls that only place elements, by the names that the exporter gives their results.
	Placing = regexp.MustCompile(`^(embedding|index|index_select|gather|slice|select|narrow|expand|expand_as|view|reshape|permute|` +
		`transpose|t|unsqueeze|squeeze|flatten|unflatten|split|split_with_sizes|chunk|unbind|getitem|repeat|repeat_interleave|` +
		`tile|cat|stack|clone|contiguous|_unsafe_view|_to_copy|roll|flip|movedim|val|_split_\d+)(_\d+)*$`)
	// lookups are those of them that take rows by index, whose arguments may be computed.
	lookups = regexp.MustCompile(`^(embedding|index|index_select|gather)(_\d+)?$`)
	// PlainNames are results that say nothing of how they are made: literals and fillers.
	PlainNames = regexp.MustCompile(`^(val|arange|zeros|ones|full|scalar_tensor|lift_fresh_copy|lifted_tensor)(_\d+)?$`)
)
