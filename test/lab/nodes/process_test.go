//go:build linux

package nodes

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// asFirst is the argument of the first process of a namespace.
const asFirst = "first"

// crowd is how many processes the namespace holds. They take longer to end than
// some threads of the first process do.
const crowd = 300

func TestMain(m *testing.M) {
	if len(os.Args) != 2 || os.Args[1] != asFirst {
		os.Exit(m.Run())
	}
	if err := runFirst(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runFirst is the first process: it starts the others, each of which holds the
// pipe that it was given open.
func runFirst() error {
	held := os.NewFile(3, "held")
	defer held.Close()
	for range crowd {
		cmd := exec.Command("sleep", "1000")
		cmd.ExtraFiles = []*os.File{held}
		if err := cmd.Start(); err != nil {
			return err
		}
	}
	fmt.Println("ok")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// TestKillEndsAll kills first processes of namespaces: nothing of a namespace is
// left when kill returns, though the first process's own first thread may have
// ended long before the others.
func TestKillEndsAll(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("makes namespaces, as root")
	}
	for range 10 {
		held, file := startCrowd(t)
		if err := kill(file); err != nil {
			t.Fatal(err)
		}
		poll := []unix.PollFd{{Fd: int32(held.Fd()), Events: unix.POLLIN}}
		if _, err := unix.Poll(poll, 0); err != nil || poll[0].Revents&unix.POLLHUP == 0 {
			t.Fatalf("a process of the namespace still runs (%v)", err)
		}
	}
}

// startCrowd starts a namespace full of processes. The pipe is closed when all
// have ended.
func startCrowd(t *testing.T) (held *os.File, pidFile string) {
	held, holds, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer holds.Close()
	t.Cleanup(func() { held.Close() })
	l := &Lab{dir: t.TempDir(), program: "/proc/self/exe"}
	pidFile = filepath.Join(l.dir, "pid")
	out, err := l.spawn(pidFile, filepath.Join(l.dir, "log"), syscall.CLONE_NEWPID, holds, asFirst)
	if err != nil {
		t.Fatal(err)
	}
	if err := awaitOK(out); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.lives[0].Close()
		_ = l.waits[0].Wait()
	})
	return held, pidFile
}
