package pass

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
)

// Asked counts the rewrites of a compilation that may be left out: those that make a program better, not right. They are
// numbered in the order in which passes come to them, which depends on nothing but the module and the options, so that the
// first so many are the same whatever becomes of the others. gtc bisect finds one that breaks a program by it.
type Asked struct {
	Total int     // how many rewrites were asked for, done or not
	Last  Rewrite // the last that was done; the zero value before the first
}

// Rewrite is one change that a pass made and might have left out.
type Rewrite struct {
	Number int    // its position among all of the compilation, from 1
	Pass   string // that made it
	Value  string // what it is about; "" for none
	Text   string // what it did
	Loc    ir.Loc // of the model
}

// String tells it as errors do.
func (r Rewrite) String() string {
	text := fmt.Sprintf("rewrite %d, of pass %s: ", r.Number, r.Pass)
	if r.Value != "" {
		text += "%" + r.Value + ": "
	}
	text += r.Text
	if !r.Loc.IsZero() {
		text += ", at " + r.Loc.String()
	}
	return text
}

// May reports whether a pass is to do a rewrite without which the program computes the same. v is the value that it is about,
// or nil. A pass asks right before it rewrites, once it knows that it can, and leaves everything as it is when the answer is
// no: Options.Rewrites of them have been done.
func (c *Context) May(v *ir.Value, format string, args ...any) bool {
	if c.Asked == nil {
		c.Asked = &Asked{}
	}
	c.Asked.Total++
	if c.Opt.Rewrites == nil {
		return true
	}
	if c.Asked.Total > *c.Opt.Rewrites {
		return false
	}
	if c.Asked.Total == *c.Opt.Rewrites {
		r := Rewrite{Number: c.Asked.Total, Pass: c.Pass, Text: fmt.Sprintf(format, args...)}
		if v != nil {
			r.Value = v.Name
			if v.Op != nil {
				r.Loc = v.Op.Loc
			}
		}
		c.Asked.Last = r
	}
	return true
}
