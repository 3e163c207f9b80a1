package model

import (
	"encoding/json"
	"maps"
	"slices"
)

// The keys of ModelProto.metadata_props in which python/gtc records what each initializer is. Values are JSON; all
// initializers that no list names are constants.
const (
	KeyParameters = "gtc.parameters" // [trained initializers]
	KeyFrozen     = "gtc.frozen"     // [parameters with requires_grad=False]
	KeyBuffers    = "gtc.buffers"    // [buffers]
	KeyTied       = "gtc.tied"       // {another name of a parameter: its name here}
	KeyPadding    = "gtc.padding"    // {table of an embedding: its padding row}
	KeyTransient  = "gtc.transient"  // [buffers that the module's state dict leaves out]
	KeyUnused     = "gtc.unused"     // [parameters on which no result depends, which the file does not hold]
	KeyLoss       = "gtc.loss"       // the name of a loss
	KeyModule     = "gtc.module"     // in files that gtc.record marked: {"version": 1}; what no key says is decided as without
	KeyEvaluation = "gtc.evaluation" // there: [modules of batch normalization in evaluation mode]; all others train
)

// Record is what python/gtc says of a model it exported.
type Record struct {
	Roles map[string]string   // initializer -> KeyParameters, KeyFrozen or KeyBuffers
	Tied  map[string][]string // initializer -> other names
	Rows  map[string]int      // table of an embedding -> its padding row
	loss  string

	Unused    []string
	Transient map[string]bool // nil in files of versions that did not record it

	Fixed map[string]bool // of marks: modules of batch normalization that keep their statistics; nil when it does not say
}

// readRecord reads the record of a model; nil when there is none, or when another tool has since changed the file
// so that it no longer fits.
func (m *File) readRecord() *Record {
	text := MetaValue(m.Proto.MetadataProps, KeyParameters)
	if text == "" {
		return nil
	}
	r := newRecord()
	for _, key := range []string{KeyParameters, KeyFrozen, KeyBuffers} {
		var names []string
		if text := MetaValue(m.Proto.MetadataProps, key); text != "" && json.Unmarshal([]byte(text), &names) != nil {
			m.Warn("the record %s in the file's metadata is not a list of names; roles are decided without it", key)
			return nil
		}
		for _, n := range names {
			if m.Inits[n] == nil {
				m.Warn("the record %s in the file's metadata names %q, which the file does not hold: another tool has "+
					"changed the file; roles are decided without the record", key, n)
				return nil
			}
			r.Roles[n] = key
		}
	}
	r.rest(m)
	return r
}

func newRecord() *Record { return &Record{Roles: map[string]string{}, Tied: map[string][]string{}} }

// readMarks reads what gtc.record has noted of a file of PyTorch's own exporters, whose tensors may have lost their names; nil
// when it has noted nothing.
func (m *File) readMarks() *Record {
	if m.Record != nil || MetaValue(m.Proto.MetadataProps, KeyModule) == "" {
		return nil
	}
	r := newRecord()
	for _, n := range m.names(KeyFrozen) {
		r.Roles[n] = KeyFrozen
	}
	if MetaValue(m.Proto.MetadataProps, KeyEvaluation) != "" {
		r.Fixed = map[string]bool{}
		for _, n := range m.names(KeyEvaluation) {
			r.Fixed[n] = true
		}
	}
	r.rest(m)
	return r
}

// names reads a list of names; a damaged one is left aside with a warning.
func (m *File) names(key string) []string {
	var out []string
	if text := MetaValue(m.Proto.MetadataProps, key); text != "" && json.Unmarshal([]byte(text), &out) != nil {
		m.Warn("the record %s in the file's metadata is not a list of names; it is ignored", key)
	}
	return out
}

// rest reads what decides no roles.
func (r *Record) rest(m *File) {
	var tied map[string]string
	_ = json.Unmarshal([]byte(MetaValue(m.Proto.MetadataProps, KeyTied)), &tied) // for reasons and exported state dicts only
	for _, other := range slices.Sorted(maps.Keys(tied)) {
		r.Tied[tied[other]] = append(r.Tied[tied[other]], other)
	}
	if text := MetaValue(m.Proto.MetadataProps, KeyPadding); text != "" && json.Unmarshal([]byte(text), &r.Rows) != nil {
		m.Warn("the record %s in the file's metadata names no rows; it is ignored", KeyPadding)
	}
	_ = json.Unmarshal([]byte(MetaValue(m.Proto.MetadataProps, KeyLoss)), &r.loss)
	_ = json.Unmarshal([]byte(MetaValue(m.Proto.MetadataProps, KeyUnused)), &r.Unused)
	if text := MetaValue(m.Proto.MetadataProps, KeyTransient); text != "" {
		var names []string
		_ = json.Unmarshal([]byte(text), &names)
		r.Transient = map[string]bool{}
		for _, n := range names {
			r.Transient[n] = true
		}
	}
}

// DefaultLoss is the loss that the exporter recorded for the model, under gtc's name for it; empty when it recorded none.
func (m *File) DefaultLoss() string {
	switch {
	case m.Record != nil:
		return m.Record.loss
	case m.Marks != nil:
		return m.Marks.loss
	}
	return ""
}

// KeyDetach marks, in a node's metadata, an Identity that is PyTorch's detach, where the exporter itself leaves no record of it.
const KeyDetach = "gtc.detach"
