package model

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/runtime/printable"
)

// Keys of the metadata that PyTorch's dynamo exporter leaves on nodes, values and the model.
const (
	KeyStack     = "pkg.torch.onnx.stack_trace"
	KeyClasses   = "pkg.torch.onnx.class_hierarchy"
	KeyFx        = "pkg.torch.onnx.fx_node"
	keyRule      = "pkg.onnxscript.rewriter.rule_name"
	keyKind      = "pkg.torch.export.graph_signature.InputSpec.kind"
	keyScopes    = "pkg.torch.onnx.name_scopes"
	keyFolded    = "pkg.onnxscript.optimizer.folded_from"
	KeySignature = "pkg.torch.export.ExportedProgram.graph_signature"
)

// locate makes the place of a node: its name and the innermost Python frame outside torch. Only the base
// name of a file is kept, so that output does not depend on where the model was exported.
func locate(name, op string, meta []*onnxpb.StringStringEntryProto) ir.Loc {
	l := ir.Loc{Node: name, OpType: printable.Line(op)}
	stack := MetaValue(meta, KeyStack)
	for at, ok := len(stack), true; ok; {
		var f frame
		if f, at, ok = lastFrame(stack[:at]); !ok {
			break
		}
		if _, _, more := lastFrame(stack[:at]); more && strings.Contains(f.file, "/torch/") {
			continue
		}
		l.File, l.Line, l.Func = printable.Line(path.Base(f.file)), f.line, printable.Line(f.function)
		break
	}
	if l.Func == "forward" {
		if class := userClass(MetaValue(meta, KeyClasses)); class != "" {
			l.Func = printable.Line(class) + "." + l.Func
		}
	}
	return l
}

// frame is one entry of a Python stack trace.
type frame struct {
	file, function string
	line           int
}

// lastFrame finds the last entry of a stack trace, File "PATH", line N, in FUNCTION, and where it starts.
func lastFrame(stack string) (f frame, at int, ok bool) {
	for end := len(stack); ; end = at {
		if at = strings.LastIndex(stack[:end], `File "`); at < 0 {
			return f, 0, false
		}
		entry, _, _ := strings.Cut(stack[at+len(`File "`):], "\n")
		file, rest, isFile := strings.Cut(entry, `", line `)
		number, function, isLine := strings.Cut(rest, ", in ")
		n, err := strconv.Atoi(number)
		if name, _, _ := strings.Cut(function, " "); isFile && isLine && err == nil && file != "" && name != "" {
			return frame{strings.ReplaceAll(file, `\`, "/"), name, n}, at, true
		}
	}
}

var quotedRE = regexp.MustCompile(`'([^']*)'`)

// userClass is the innermost module class outside torch in a list such as ['m.Net', 'torch.nn.Linear'].
func userClass(list string) string {
	found := quotedRE.FindAllStringSubmatch(list, -1)
	for i := len(found) - 1; i >= 0; i-- {
		name := found[i][1]
		if strings.HasPrefix(name, "torch.") || strings.HasPrefix(name, "aten.") || !strings.Contains(name, ".") {
			continue
		}
		return name[strings.LastIndexByte(name, '.')+1:]
	}
	return ""
}

// MetaValue is the value of a key among the metadata; empty when it is not there.
func MetaValue(meta []*onnxpb.StringStringEntryProto, key string) string {
	for _, p := range meta {
		if p.GetKey() == key {
			return p.GetValue()
		}
	}
	return ""
}
