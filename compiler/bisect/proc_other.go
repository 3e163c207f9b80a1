//go:build !unix

package bisect

import "os/exec"

func together(*exec.Cmd) {}
