package onnx

import (
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// Keys of the metadata that PyTorch's dynamo exporter leaves on nodes, values and the model.
const (
	keyStack     = "pkg.torch.onnx.stack_trace"
	keyClasses   = "pkg.torch.onnx.class_hierarchy"
	keyFx        = "pkg.torch.onnx.fx_node"
	keyRule      = "pkg.onnxscript.rewriter.rule_name"
	keyKind      = "pkg.torch.export.graph_signature.InputSpec.kind"
	keySignature = "pkg.torch.export.ExportedProgram.graph_signature"
)

var frameRE = regexp.MustCompile(`File "([^"\n]+)", line (\d+), in ([^\s]+)`)

// locate makes the place of a node: its name and the innermost Python frame outside torch. Only the base
// name of a file is kept, so that output does not depend on where the model was exported.
func locate(name, op string, meta []*onnxpb.StringStringEntryProto) ir.Loc {
	l := ir.Loc{Node: name, OpType: op}
	frames := frameRE.FindAllStringSubmatch(metaValue(meta, keyStack), -1)
	for i := len(frames) - 1; i >= 0; i-- {
		f := frames[i]
		file := strings.ReplaceAll(f[1], `\`, "/")
		if strings.Contains(file, "/torch/") && i > 0 {
			continue
		}
		l.File = path.Base(file)
		l.Line, _ = strconv.Atoi(f[2])
		l.Func = f[3]
		break
	}
	if l.Func == "forward" {
		if class := userClass(metaValue(meta, keyClasses)); class != "" {
			l.Func = class + "." + l.Func
		}
	}
	return l
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

func metaValue(meta []*onnxpb.StringStringEntryProto, key string) string {
	for _, p := range meta {
		if p.GetKey() == key {
			return p.GetValue()
		}
	}
	return ""
}
