//go:build !linux

package lab

import "syscall"

// childAttributes gives a child a process group of its own, so that Ctrl-C
// reaches the lab alone.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
