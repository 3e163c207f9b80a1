// Package gtc is the root of the graph training compiler. It holds what the gtc binary carries with it: the
// source of the run-time, which every compiled folder vendors, so that compiling works offline and outside
// any checkout. The compiler's parts are in the packages below.
package gtc

import "embed"

// Version is gtc's version, written into manifests and checked by nothing else.
const Version = "0.1.0"

// Runtime is the source of the packages that rank programs import.
//
//go:embed runtime distributed kernels/cpu
var Runtime embed.FS
