//go:build unix

package bisect

import (
	"os/exec"
	"syscall"
)

// together has cmd and what it starts be ended as one.
func together(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
}
