// Package onnxgo makes gtc a backend of github.com/owulveryck/onnx-go: a Go program that loads models with onnx-go can
// infer and train them with gtc.
//
//	m, g, err := onnxgo.Load(file)       // or onnx.NewModel(onnxgo.New(onnxgo.Options{})) and m.UnmarshalBinary
//	m.SetInput(0, x)
//	err = g.Run()                        // infer: compiled C kernels in a process of their own
//	y, err := m.GetOutputTensors()
//	err = g.Train(ctx, &onnxgo.Training{Inputs: data, Target: labels, Steps: 100, ...})
//	err = g.Run()                        // with the trained weights
//
// # What onnx-go loses
//
// A backend of onnx-go v0.5.0 gets names, edges and attributes, no more. Symbolic dims are dropped: here the dims of an
// input are those of the tensor that it holds when Run or Train is called. The opset is dropped: Load reads it from the
// file, New takes it from Options. Domains are dropped: an operator that the default domain lacks is looked for in
// com.microsoft. Subgraphs, and element types other than float32, float64, int32, int64 and bool, are refused by onnx-go
// itself. frontend/onnx reads all of these; it is the loader that gtc's own programs use.
//
// # Cost
//
// The first Run for given dims builds a program with the C compiler (seconds); later ones start it and pass arrays
// through files (milliseconds). The folder is Options.Dir, or a temporary one that Close removes.
package onnxgo

// go4.org/unsafe/assume-no-moving-gc, which gorgonia.org/tensor stands on, refuses to start with a Go newer than it knows:
// go.mod asks for its newest version.
import _ "go4.org/unsafe/assume-no-moving-gc"
