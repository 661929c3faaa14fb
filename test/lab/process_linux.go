package lab

import "syscall"

// childAttributes gives a child a process group of its own, so that Ctrl-C
// reaches the lab alone, and ties its life to the lab's.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
