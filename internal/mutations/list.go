// Package mutations lists what tests break on purpose, and who notices.
package mutations

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// List is what one test breaks. With -v each mutation is a line of the test's log: what was done, and who caught it.
type List struct {
	t  testing.TB
	by map[string]int
}

// Of begins the list of test t, which fails at its end unless there are at least so many mutations.
func Of(t testing.TB, least int) *List {
	l := &List{t: t, by: map[string]int{}}
	t.Cleanup(func() {
		n := 0
		var parts []string
		for _, who := range slices.Sorted(maps.Keys(l.by)) {
			n += l.by[who]
			parts = append(parts, fmt.Sprintf("%d %s", l.by[who], who))
		}
		if n < least && !t.Failed() {
			t.Errorf("only %d mutations, of %d", n, least)
		}
		t.Logf("%d mutations: %s", n, strings.Join(parts, ", "))
	})
	return l
}

// Caught notes who refuses a mutation, or shows it to be wrong, and what is said of it.
func (l *List) Caught(mutation, who string, says any) {
	l.t.Helper()
	l.note(mutation, "caught by "+who, says)
}

// Harmless notes a mutation that gives an equal program, and what proves it.
func (l *List) Harmless(mutation, proof string) {
	l.t.Helper()
	l.note(mutation, "harmless, equal program", proof)
}

// Missed fails the test: nobody notices the mutation.
func (l *List) Missed(mutation string) {
	l.t.Helper()
	l.by["missed"]++
	l.t.Errorf("mutation: %s → caught by nobody", mutation)
}

func (l *List) note(mutation, who string, says any) {
	l.t.Helper()
	l.by[who]++
	if testing.Verbose() {
		text := []rune(strings.Join(strings.Fields(fmt.Sprint(says)), " "))
		if len(text) > 160 {
			text = append(text[:160], '…')
		}
		l.t.Logf("mutation: %s → %s: %s", mutation, who, string(text))
	}
}

// Fill sets every field of v, and of what it holds, to something that is not zero and that no other field has. leaf sees each
// that holds no others, with its path. Functions stay nil. It panics for a kind that it cannot fill.
func Fill(v reflect.Value, leaf func(path string, v reflect.Value)) {
	n := 0
	fill(v, "", &n, leaf)
}

func fill(v reflect.Value, path string, n *int, leaf func(path string, v reflect.Value)) {
	*n++
	switch v.Kind() {
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d \"\n", *n))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), path, n, leaf)
		return
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i), fmt.Sprintf("%s[%d]", path, i), n, leaf)
		}
		return
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key, path, n, func(string, reflect.Value) {})
		fill(value, path+"[]", n, func(string, reflect.Value) {})
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), path+"."+v.Type().Field(i).Name, n, leaf)
		}
		return
	case reflect.Func:
		return
	default: // else a field would be left out in silence, and a printer that forgets it would pass
		panic(fmt.Sprintf("mutations: %s is a %s, which cannot be filled", path, v.Kind()))
	}
	leaf(path, v)
}

// Zeroed tries every field of a T that a printer could forget: it fills one, sets one field after the other to zero, and
// notes on l that what is printed of it differs from what is printed of the whole. print prints and reads back.
func Zeroed[T any](l *List, printer string, print func(x T) T) {
	l.t.Helper()
	var whole T
	var paths []string
	Fill(reflect.ValueOf(&whole).Elem(), func(path string, _ reflect.Value) { paths = append(paths, path) })
	name := reflect.TypeFor[T]().String()
	if got := print(whole); !reflect.DeepEqual(got, whole) {
		l.t.Fatalf("%+v is printed as what is %+v", whole, got)
	}
	for _, faulty := range paths {
		var part T
		Fill(reflect.ValueOf(&part).Elem(), func(path string, v reflect.Value) {
			if path == faulty {
				v.SetZero()
			}
		})
		mutation := fmt.Sprintf("%s forgets %s%s", printer, name, faulty)
		if got := print(part); reflect.DeepEqual(got, whole) || !reflect.DeepEqual(got, part) {
			l.Missed(mutation)
			continue
		}
		l.Caught(mutation, "the comparison of what is printed", "the field is zero when it is read back")
	}
}
