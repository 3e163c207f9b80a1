// Package gtc is the root of the graph training compiler. The compiler's parts are in the packages below.
package gtc

import "github.com/gtc-compiler/gtc/codegen/build"

// Version is gtc's version, written into manifests and checked by nothing else.
const Version = build.Version
