package shard

import (
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/gtc-compiler/gtc/distributed/mesh"
	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/passes/pass"
)

// The user's shardings are GLOB=DIM,DIM,…: for each dimension _ or the axes that split it, joined by +. A glob matches
// names of parameters, or else of values; a later one goes over an earlier one. @FILE is a file of them, one on a line.

// userConstraints reads the user's shardings of what @step names: parameters, buffers, state and values.
func userConstraints(c *pass.Context, m mesh.Mesh, f *ir.Func) (map[string]mesh.Sharding, error) {
	lines, err := shardLines(c.Opt.Shard)
	if err != nil {
		return nil, err
	}
	out := map[string]mesh.Sharding{}
	for _, line := range lines {
		glob, text, ok := cutLast(line, "=")
		if !ok || glob == "" {
			return nil, ir.Errorf(ir.Loc{}, "--shard %q: write GLOB=AXES, such as h.*.mlp.c_fc.weight=_,tp", line)
		}
		matched := matching(glob, f)
		if len(matched) == 0 {
			return nil, ir.Errorf(ir.Loc{}, "--shard %q: no parameter or value is called %q", line, glob).Note("gtc inspect lists the parameters")
		}
		for _, v := range matched {
			s, err := parseSharding(line, text, m, v)
			if err != nil {
				return nil, err
			}
			out[v.Name] = s
		}
	}
	return out, nil
}

// shardLines replaces @FILE by the lines of the file.
func shardLines(list []string) ([]string, error) {
	var out []string
	for _, s := range list {
		file, ok := strings.CutPrefix(s, "@")
		if !ok {
			out = append(out, s)
			continue
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, ir.Errorf(ir.Loc{}, "--shard @FILE: %v", err)
		}
		for line := range strings.Lines(string(data)) {
			if line, _, _ = strings.Cut(line, "#"); strings.TrimSpace(line) != "" {
				out = append(out, strings.TrimSpace(line))
			}
		}
	}
	return out, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// matching lists the parameters that glob matches, or, when there are none, the results of ops. In a glob * stands for
// any text and ? for one character; names match whole, or from any dot on. State follows its parameter.
func matching(glob string, f *ir.Func) []*ir.Value {
	match := regexp.MustCompile(`(?s)^(.*\.)?` + pass.Glob(glob) + "$").MatchString
	var out []*ir.Value
	for _, p := range f.Params {
		if (p.Role == ir.Param || p.Role == ir.Buffer) && match(p.Name) {
			out = append(out, p)
		}
	}
	if len(out) > 0 {
		return out
	}
	for _, op := range f.Ops {
		for _, v := range op.Out {
			if match(v.Name) {
				out = append(out, v)
			}
		}
	}
	return out
}

// parseSharding reads text as the sharding of v.
func parseSharding(line, text string, m mesh.Mesh, v *ir.Value) (mesh.Sharding, error) {
	dims := strings.Split(text, ",")
	if len(dims) != len(v.Type.Dims) {
		return mesh.Sharding{}, ir.Errorf(ir.Loc{}, "--shard %q: %d dimensions are given, but %q is %s", line, len(dims), v.Name, v.Type)
	}
	s := mesh.Sharding{Dims: make([][]string, len(dims))}
	var seen []string
	for d, list := range dims {
		if list = strings.TrimSpace(list); list == "_" {
			continue
		}
		ways := 1
		for _, axis := range strings.Split(list, "+") {
			switch {
			case axis != mesh.DataAxis && axis != mesh.TensorAxis:
				return s, ir.Errorf(ir.Loc{}, "--shard %q: there is no axis %q to split over; the axes are dp and tp", line, axis)
			case axis == mesh.DataAxis && v.Op != nil:
				return s, ir.Errorf(ir.Loc{}, "--shard %q: %q is not a parameter, and is split over dp as the samples are", line, v.Name)
			case m.Size(axis) < 2:
				return s, ir.Errorf(ir.Loc{}, "--shard %q: axis %s has one rank, so it splits nothing: give --%s of at least 2", line, axis, axis)
			case slices.Contains(seen, axis):
				return s, ir.Errorf(ir.Loc{}, "--shard %q: axis %s is named twice", line, axis)
			}
			seen = append(seen, axis)
			s.Dims[d], ways = append(s.Dims[d], axis), ways*m.Size(axis)
		}
		if v.Type.Dims[d]%ways != 0 {
			return s, ir.Errorf(ir.Loc{}, "--shard %q: dimension %d of %q %s is not divisible by %s=%d", line, d, v.Name, v.Type, list, ways)
		}
	}
	if s.IsReplicated() {
		return mesh.Sharding{}, nil
	}
	return s, nil
}
