// Package source carries the source of the packages below this folder, which every compiled folder vendors.
package source

import "embed"

// Files are the folders beside this file.
//
//go:embed *
var Files embed.FS
