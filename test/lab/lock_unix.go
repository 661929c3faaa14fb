//go:build unix

package lab

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFolder waits until no other process builds into a folder. The kernel gives the
// lock back when the process ends, however it ends.
func lockFolder(dir string) (unlock func(), err error) {
	file, err := os.OpenFile(dir+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		if err = unix.Flock(int(file.Fd()), unix.LOCK_EX); err != unix.EINTR {
			break
		}
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return func() { _ = file.Close() }, nil
}
