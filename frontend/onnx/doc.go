// Package onnx reads forward ONNX models and turns them into gtc's IR.
//
// Load reads and checks a file; Import walks its nodes in order. A node whose inputs are all known on the
// host is folded there (fold*.go), any other becomes core ops by its row in table.go. Which initializers
// are trained is decided in roles.go from how they are used and what they hold. The package knows nothing
// of passes, targets or training; an untrusted file can make it return an error, never more.
package onnx
