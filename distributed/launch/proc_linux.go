package launch

import "syscall"

// procAttr puts a rank in a process group of its own, so that Ctrl-C reaches
// it once, through the launcher, and ends it when the launcher is killed.
func procAttr() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
