package onnx

import (
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/model"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/roles"
	"github.com/gtc-compiler/gtc/frontend/onnx/internal/walk"
	"github.com/gtc-compiler/gtc/frontend/onnx/onnxpb"
	"github.com/gtc-compiler/gtc/ir"
)

// What the packages below hold of the interface.
type (
	// Options says how a model's free choices are bound and overrides what the importer would decide.
	Options = model.Options
	// RoleRule says that the parameters that match a glob are trained, or that they are not.
	RoleRule = model.RoleRule
	// Contents is what an input of a sequence or optional type holds.
	Contents = model.Contents
	// Input is an input of the graph as the file declares it.
	Input = model.Input
	// Parameter is a tensor of the model with the role it plays in training and why.
	Parameter = roles.Parameter
	// Count is how often an operator occurs.
	Count = model.Count
	// TrainingInfo is what the training algorithm of a file says, which gtc does not use.
	TrainingInfo = model.TrainingInfo
	// Binding says that an initializer takes the value of a graph's result.
	Binding = model.Binding
)

// The roles of an initializer, as printed by gtc inspect.
const (
	RoleParameter = roles.RoleParameter // trained
	RoleBuffer    = roles.RoleBuffer    // kept and updated by the model (running statistics), or frozen by the user
	RoleConstant  = roles.RoleConstant  // part of the computation: masks, tables, scalars
)

// Operators lists the names of all supported operators, sorted.
func Operators() []string { return walk.Operators() }

// ReadContents decodes a file that holds one value of type typ, as the ONNX project's test data stores the inputs and
// outputs of its cases. The tensors are known.
func ReadContents(data []byte, typ *onnxpb.TypeProto) (*Contents, error) {
	return model.ReadContents(data, typ)
}

// ReadTensor decodes a file that holds one TensorProto.
func ReadTensor(data []byte) (*ir.Tensor, error) { return model.ReadTensor(data) }

// ShapeText writes dims as --dim takes them: 4x16, or scalar for none.
func ShapeText(dims []int) string { return model.ShapeText(dims) }

// ParseShape reads what ShapeText writes.
func ParseShape(text string) ([]int, error) { return model.ParseShape(text) }
