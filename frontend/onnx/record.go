package onnx

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/ir/ops"
)

// The keys of ModelProto.metadata_props in which python/gtc records what each initializer is. Values are JSON; all
// initializers that no list names are constants.
const (
	keyParameters = "gtc.parameters" // [trained initializers]
	keyFrozen     = "gtc.frozen"     // [parameters with requires_grad=False]
	keyBuffers    = "gtc.buffers"    // [buffers]
	keyTied       = "gtc.tied"       // {another name of a parameter: its name here}
	keyPadding    = "gtc.padding"    // {table of an embedding: its padding row}
	keyTransient  = "gtc.transient"  // [buffers that the module's state dict leaves out]
	keyUnused     = "gtc.unused"     // [parameters on which no result depends, which the file does not hold]
	keyLoss       = "gtc.loss"       // the name of a loss
	keyModule     = "gtc.module"     // in files that gtc.record marked: {"version": 1}; what no key says is decided as without
	keyEvaluation = "gtc.evaluation" // there: [modules of batch normalization in evaluation mode]; all others train
)

// record is what python/gtc says of a model it exported.
type record struct {
	roles map[string]string   // initializer -> keyParameters, keyFrozen or keyBuffers
	tied  map[string][]string // initializer -> other names
	rows  map[string]int      // table of an embedding -> its padding row
	loss  string

	unused    []string
	transient map[string]bool // nil in files of versions that did not record it

	fixed map[string]bool // of marks: modules of batch normalization that keep their statistics; nil when it does not say
}

// readRecord reads the record of a model; nil when there is none, or when another tool has since changed the file
// so that it no longer fits.
func (m *Model) readRecord() *record {
	text := metaValue(m.Proto.MetadataProps, keyParameters)
	if text == "" {
		return nil
	}
	r := newRecord()
	for _, key := range []string{keyParameters, keyFrozen, keyBuffers} {
		var names []string
		if text := metaValue(m.Proto.MetadataProps, key); text != "" && json.Unmarshal([]byte(text), &names) != nil {
			m.warn("the record %s in the file's metadata is no list of names; roles are decided without it", key)
			return nil
		}
		for _, n := range names {
			if m.inits[n] == nil {
				m.warn("the record %s in the file's metadata names %q, which the file does not hold: another tool has "+
					"changed the file; roles are decided without the record", key, n)
				return nil
			}
			r.roles[n] = key
		}
	}
	r.rest(m)
	return r
}

func newRecord() *record { return &record{roles: map[string]string{}, tied: map[string][]string{}} }

// readMarks reads what gtc.record has noted of a file of PyTorch's own exporters, whose tensors may have lost their names; nil
// when it has noted nothing.
func (m *Model) readMarks() *record {
	if m.record != nil || metaValue(m.Proto.MetadataProps, keyModule) == "" {
		return nil
	}
	r := newRecord()
	for _, n := range m.names(keyFrozen) {
		r.roles[n] = keyFrozen
	}
	if metaValue(m.Proto.MetadataProps, keyEvaluation) != "" {
		r.fixed = map[string]bool{}
		for _, n := range m.names(keyEvaluation) {
			r.fixed[n] = true
		}
	}
	r.rest(m)
	return r
}

// names reads a list of names; a damaged one is left aside with a warning.
func (m *Model) names(key string) []string {
	var out []string
	if text := metaValue(m.Proto.MetadataProps, key); text != "" && json.Unmarshal([]byte(text), &out) != nil {
		m.warn("the record %s in the file's metadata is no list of names; it is left aside", key)
	}
	return out
}

// rest reads what decides no roles.
func (r *record) rest(m *Model) {
	var tied map[string]string
	_ = json.Unmarshal([]byte(metaValue(m.Proto.MetadataProps, keyTied)), &tied) // for reasons and exported state dicts only
	for _, other := range slices.Sorted(maps.Keys(tied)) {
		r.tied[tied[other]] = append(r.tied[tied[other]], other)
	}
	if text := metaValue(m.Proto.MetadataProps, keyPadding); text != "" && json.Unmarshal([]byte(text), &r.rows) != nil {
		m.warn("the record %s in the file's metadata names no rows; it is left aside", keyPadding)
	}
	_ = json.Unmarshal([]byte(metaValue(m.Proto.MetadataProps, keyLoss)), &r.loss)
	_ = json.Unmarshal([]byte(metaValue(m.Proto.MetadataProps, keyUnused)), &r.unused)
	if text := metaValue(m.Proto.MetadataProps, keyTransient); text != "" {
		var names []string
		_ = json.Unmarshal([]byte(text), &names)
		r.transient = map[string]bool{}
		for _, n := range names {
			r.transient[n] = true
		}
	}
}

// fromRecord gives each float initializer the role that the record says.
func (r *roles) fromRecord(rec *record) {
	for _, t := range r.m.initList {
		if t.bad != nil || !t.typ.DType.IsFloat() {
			continue
		}
		role, reason := RoleConstant, "neither a parameter nor a buffer of the PyTorch module"
		switch rec.roles[t.name] {
		case keyParameters:
			role, reason = RoleParameter, "a parameter of the PyTorch module, as gtc.export recorded"
			if others := rec.tied[t.name]; len(others) > 0 {
				reason += fmt.Sprintf("; tied to it there: %s", strings.Join(others, ", "))
			}
		case keyFrozen:
			role, reason = RoleBuffer, "a parameter with requires_grad=False, as gtc.export recorded"
		case keyBuffers:
			role, reason = RoleConstant, "a buffer of the PyTorch module that nothing updates"
			for _, u := range r.uses[t.name] {
				if isStatistic(u) {
					role, reason = RoleBuffer, ofStatistics
				}
			}
		}
		p := r.add(t, t.name, direct, role, reason)
		p.Aliases = rec.tied[t.name]
		r.byName[t.name] = &source{leafOf(p)}
	}
}

// applyMarks freezes the parameters that gtc.record has marked, by any of their names, and gives tied ones theirs.
func (r *roles) applyMarks(marks *record) {
	groups := map[string][]string{} // all names of a tied tensor by each of them
	for first, others := range marks.tied {
		group := append([]string{first}, others...)
		for _, name := range group {
			groups[name] = group
		}
	}
	found := map[string]bool{}
	for _, p := range r.params {
		for _, name := range groups[p.Name] {
			if name != p.Name && r.named[name] == nil && !slices.Contains(p.Aliases, name) {
				p.Aliases = append(p.Aliases, name)
			}
		}
		for _, name := range slices.Concat([]string{p.Name, p.Origin}, groups[p.Name]) {
			if marks.roles[name] != keyFrozen {
				continue
			}
			found[name] = true
			if p.Role == RoleParameter {
				p.Role, p.Reason = RoleBuffer, "a parameter with requires_grad=False, as gtc.record noted"
			}
		}
	}
	var lost []string
	for name := range marks.roles {
		if !found[name] {
			lost = append(lost, name)
		}
	}
	if slices.Sort(lost); len(lost) > 0 {
		r.m.warn("the file has no tensor of the frozen parameters %s (requires_grad=False): no result depends on them, or the exporter folded "+
			"them into others, which are trained; gtc.export keeps them apart", strings.Join(lost, ", "))
	}
}

// DefaultLoss is the loss that the exporter recorded for the model, under gtc's name for it; empty when it recorded none.
func (m *Model) DefaultLoss() string {
	switch {
	case m.record != nil:
		return m.record.loss
	case m.marks != nil:
		return m.marks.loss
	}
	return ""
}

// keyDetach marks, in a node's metadata, an Identity that is PyTorch's detach, where the exporter itself leaves no record of it.
const keyDetach = "gtc.detach"

// importIdentity gives its operand on. The dynamo exporter writes PyTorch's detach as an Identity too: no gradient passes it.
func importIdentity(w *walker, n *node, in []*val) []*val {
	if x := in[0]; (n.fx.is("detach") || metaValue(n.proto.MetadataProps, keyDetach) != "") && x.t.DType.IsFloat() && w.array(x) == nil {
		return outs(ops.Detach(w.b, w.value(x)))
	}
	return in
}
