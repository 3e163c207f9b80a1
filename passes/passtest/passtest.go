// Package passtest runs the golden tests of one pass through ir/irtest: the lines of -- opt -- become
// pass.Options, remarks come back as text.
package passtest

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/gtc-compiler/gtc/ir"
	"github.com/gtc-compiler/gtc/ir/irtest"
	_ "github.com/gtc-compiler/gtc/ir/ops" // the ops that golden files name
	"github.com/gtc-compiler/gtc/passes/pass"
)

// Golden runs one pass over testdata/*.txtar.
func Golden(t *testing.T, name string, run func(*pass.Context) error, o irtest.Options) {
	t.Helper()
	irtest.Run(t, "testdata/*.txtar", o, func(c *irtest.Case) ([]string, error) {
		opt, err := Options(c.Opt)
		if err != nil {
			t.Fatal(err)
		}
		ctx := &pass.Context{Module: c.Module, Opt: opt, Pass: name}
		err = run(ctx)
		var remarks []string
		for _, r := range ctx.Remarks {
			remarks = append(remarks, r.String())
		}
		return remarks, err
	})
}

// Options makes pass.Options from dotted field names in lower case, such as "optimizer.lr" or "clipnorm"; a list
// is separated by commas. IgnoreIndex starts as -100. The key "changes" belongs to irtest.
func Options(m map[string]string) (*pass.Options, error) {
	o := &pass.Options{IgnoreIndex: -100}
	for k, v := range m {
		if k == "changes" {
			continue
		}
		if err := set(reflect.ValueOf(o).Elem(), strings.Split(strings.ToLower(k), "."), v); err != nil {
			return nil, fmt.Errorf("option %s=%s: %w", k, v, err)
		}
	}
	return o, nil
}

func set(s reflect.Value, path []string, text string) error {
	f := s.FieldByNameFunc(func(n string) bool { return strings.ToLower(n) == path[0] })
	if !f.IsValid() {
		return fmt.Errorf("there is no field %q", path[0])
	}
	if len(path) > 1 {
		return set(f, path[1:], text)
	}
	var err error
	switch f.Interface().(type) {
	case string:
		f.SetString(text)
	case int:
		var n int64
		n, err = strconv.ParseInt(text, 10, 64)
		f.SetInt(n)
	case float64:
		var x float64
		x, err = strconv.ParseFloat(text, 64)
		f.SetFloat(x)
	case bool:
		var y bool
		y, err = strconv.ParseBool(text)
		f.SetBool(y)
	case []string:
		f.Set(reflect.ValueOf(strings.Split(text, ",")))
	default:
		err = fmt.Errorf("its type is %s", f.Type())
	}
	return err
}

// Context is a context on the parsed text with options as in Options.
func Context(name, text string, opt map[string]string) (*pass.Context, error) {
	o, err := Options(opt)
	if err != nil {
		return nil, err
	}
	m, err := ir.Parse(text)
	if err != nil {
		return nil, err
	}
	return &pass.Context{Module: m, Opt: o, Pass: name}, m.Verify()
}
