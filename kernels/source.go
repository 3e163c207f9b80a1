// Package source carries the source of the CPU's kernel templates, which compiled folders vendor.
package source

import "embed"

// Files is the folder cpu.
//
//go:embed cpu
var Files embed.FS
