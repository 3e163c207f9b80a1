// Package onnx reads forward ONNX models and turns them into gtc's IR.
//
// Load reads and checks a file (internal/model); Import walks its nodes in order (internal/walk). A node whose inputs are all
// known on the host is folded there (internal/fold), any other becomes core ops by the rule of its row (internal/rules, a
// package for operators of one kind and a file for each family). Which initializers are trained is decided in
// internal/roles from how they are used and what they hold. The package knows nothing of passes, targets or training;
// an untrusted file can make it return an error, never more.
package onnx
