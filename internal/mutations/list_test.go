package mutations

import (
	"reflect"
	"testing"
)

// recorder takes what a list says of a test.
type recorder struct {
	testing.TB
	failed  bool
	cleanup func()
}

func (r *recorder) Helper()               {}
func (r *recorder) Logf(string, ...any)   {}
func (r *recorder) Errorf(string, ...any) { r.failed = true }
func (r *recorder) Failed() bool          { return r.failed }
func (r *recorder) Cleanup(f func())      { r.cleanup = f }

type pair struct{ A, B int }

// TestList: a mutation that nobody catches fails the test, and so does a list that is too short.
func TestList(t *testing.T) {
	for name, c := range map[string]struct {
		test func(l *List)
		want bool
	}{
		"caught":    {func(l *List) { l.Caught("x", "Verify", "no"); l.Harmless("y", "same text") }, false},
		"missed":    {func(l *List) { l.Caught("x", "Verify", "no"); l.Missed("y") }, true},
		"too few":   {func(l *List) { l.Caught("x", "Verify", "no") }, true},
		"printed":   {func(l *List) { Zeroed(l, "p", func(x pair) pair { return x }) }, false},
		"made good": {func(l *List) { Zeroed(l, "p", func(x pair) pair { return pair{max(x.A, 2), x.B} }) }, true},
	} {
		r := &recorder{TB: t}
		c.test(Of(r, 2))
		if r.cleanup(); r.failed != c.want {
			t.Errorf("%s: failed is %v", name, r.failed)
		}
	}
}

// TestFill: a field of a kind that Fill does not know would never be tried.
func TestFill(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a field is left zero and nobody is told")
		}
	}()
	var x struct{ A []uint8 }
	Fill(reflect.ValueOf(&x).Elem(), func(string, reflect.Value) {})
}
