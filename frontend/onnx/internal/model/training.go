package model

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
)

// TrainingInfo is what one TrainingInfoProto of a file says: how ONNX's training domain would set up and train the
// model. gtc reports it and does not run it: it differentiates the graph itself, with a loss and an optimizer of its own.
type TrainingInfo struct {
	// Initialization counts the operators of the graph that computes first values, Initializes lists what it sets.
	Initialization []Count   `json:"initialization"`
	Initializes    []Binding `json:"initializes"`
	// Algorithm counts the operators of one training step, Updates lists what the step assigns to.
	Algorithm []Count   `json:"algorithm"`
	Updates   []Binding `json:"updates"`
}

// Binding says that an initializer of the model or of a training graph takes the value of a graph's result.
type Binding struct {
	Initializer string `json:"initializer"`
	Output      string `json:"output"`
}

// TrainingInfo reads the file's training_info.
func (m *File) TrainingInfo() []TrainingInfo {
	var out []TrainingInfo
	for _, p := range m.Proto.TrainingInfo {
		out = append(out, TrainingInfo{
			Initialization: graphOps(p.Initialization), Initializes: bindings(p.InitializationBinding),
			Algorithm: graphOps(p.Algorithm), Updates: bindings(p.UpdateBinding),
		})
	}
	return out
}

func bindings(list []*onnxpb.StringStringEntryProto) []Binding {
	out := []Binding{}
	for _, e := range list {
		out = append(out, Binding{e.GetKey(), e.GetValue()})
	}
	return out
}

// graphOps counts the operators of a graph; operators of other domains have theirs before their name.
func graphOps(g *onnxpb.GraphProto) []Count {
	kinds := map[string]int{}
	for _, n := range g.GetNode() {
		name := n.GetOpType()
		if d := StandardDomain(n.GetDomain()); d != "" {
			name = d + "." + name
		}
		kinds[name]++
	}
	return append([]Count{}, CountsOf(kinds)...)
}

// checkTraining warns that a file's own training algorithm is not what gtc runs, and reports bindings to nothing.
func (m *File) checkTraining() {
	for i, p := range m.Proto.TrainingInfo {
		held := map[string]bool{}
		for name := range m.Inits {
			held[name] = true
		}
		for _, t := range append(p.GetAlgorithm().GetInitializer(), p.GetInitialization().GetInitializer()...) {
			held[t.GetName()] = true
		}
		var updated []string
		for _, e := range append(append([]*onnxpb.StringStringEntryProto{}, p.InitializationBinding...), p.UpdateBinding...) {
			if !held[e.GetKey()] {
				m.Warn("training_info %d assigns to %q, which is not an initializer", i, e.GetKey())
			}
		}
		for _, e := range p.UpdateBinding {
			updated = append(updated, fmt.Sprintf("%q", e.GetKey()))
		}
		if len(updated) > 8 {
			updated = append(updated[:8:8], fmt.Sprintf("and %d more", len(updated)-8))
		}
		m.Warn("the file carries a training algorithm of its own (%d nodes, %d to initialize; it updates %s): gtc ignores it, starts from "+
			"the initializers as they are and trains with --loss and --optimizer", len(p.GetAlgorithm().GetNode()),
			len(p.GetInitialization().GetNode()), strings.Join(updated, ", "))
	}
}

// Count is how often an operator occurs.
type Count struct {
	Name  string `json:"name"`
	Count int    `json:"count"`
}

// CountsOf lists what m counts, sorted by name.
func CountsOf(m map[string]int) []Count {
	var out []Count
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, Count{name, m[name]})
	}
	return out
}
