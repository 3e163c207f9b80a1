package model

import (
	"fmt"

	"github.com/gtc-compiler/gtc/ir"
)

// Options says how a model's free choices are bound and overrides what the importer would decide.
type Options struct {
	// Dims binds symbolic dimensions by name (--dim seq=128).
	Dims map[string]int
	// Shapes gives the dimensions of inputs by name (--dim x=4x16): of those for which the file has none, and of open ones.
	Shapes map[string][]int `json:",omitempty"`
	// Values gives the contents of inputs that must be known when compiling, such as trip counts, as numbers with commas
	// between (--value n=3). They are constants of the program, not its inputs.
	Values map[string]string `json:",omitempty"`
	// Batch, when positive, is the number of samples of every input that has them along an open dimension, the leading one or that of
	// BatchDims (--batch 32).
	Batch int
	// BatchDims are the dimensions along which inputs have their samples (--batch-dim x=1), counted from the end where negative.
	BatchDims map[string]int `json:",omitempty"`
	// Train, Freeze and Untie are globs over initializer names, Tie holds "copy=original" pairs of globs
	// or names; they override the roles and ties that were found (--train, --freeze, --tie, --untie).
	Train, Freeze, Tie, Untie []string
	// Roles are applied after Train and Freeze in their order: of two that match a parameter the later one holds. They are
	// --train and --freeze in the order of the command line.
	Roles []RoleRule
	// PaddingIdx are rows of embeddings that stay as they are: "GLOB=ROW" or "ROW" for all (--padding-idx).
	PaddingIdx []string
	// Abstract accepts initializers whose data is not there: they have a type and no contents (--abstract-weights).
	Abstract bool `json:",omitempty"`
	// Name is what errors call the file; its base name when empty.
	Name string
	// Outputs selects graph outputs by name, in that order; all of them when empty.
	Outputs []string
	// Fixed gives inputs that are known when compiling: they are constants of the program, not its inputs.
	Fixed map[string]*ir.Tensor
	// Contents gives what inputs of a sequence or optional type hold. A program takes tensors only, so their number and
	// types are fixed when compiling.
	Contents map[string]*Contents
}

// RoleRule says that the parameters that match a glob are trained, or that they are not.
type RoleRule struct {
	Train bool
	Glob  string
}

// Contents is what an input of a sequence or optional type holds. Its tensors are inputs of the program, named
// name.0, name.1, …, or constants of it.
type Contents struct {
	// Elements are the tensors: of a sequence in order, one of an optional tensor. Their data is only read when they
	// are known.
	Elements []*ir.Tensor
	// Sequence tells a sequence (also inside an optional) from an optional tensor; Absent is an optional that holds nothing.
	Sequence, Absent bool
	// Known makes the tensors constants of the program instead of inputs.
	Known bool
}

// Port is the name of the program's input for element i of the graph's input called name.
func (c *Contents) Port(name string, i int) string {
	if c.Sequence {
		return fmt.Sprintf("%s.%d", name, i)
	}
	return name
}
