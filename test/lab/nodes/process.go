//go:build linux

package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is remembered so that one that got the same number later is never
// taken for it.
type process struct {
	PID   int
	Start string
	Boot  string
}

func bootID() string {
	id, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id))
}

// startOf is when a process started, and empty if there is none. ended says that
// its first thread has ended; the others may not have.
func startOf(pid int) (start string, ended bool) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", true
	}
	fields := strings.Fields(string(raw[strings.LastIndex(string(raw), ")")+1:]))
	if len(fields) < 20 {
		return "", true
	}
	return fields[19], fields[0] == "Z" || fields[0] == "X"
}

func remember(file string, pid int) error {
	start, ended := startOf(pid)
	if ended {
		return errors.New("the process ended at once")
	}
	raw, err := json.Marshal(process{pid, start, bootID()})
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o600)
}

// recorded is the process recorded in file, or 0 when nothing of it is there.
func recorded(file string) (pid int, ended bool) {
	var p process
	raw, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(raw, &p) != nil || p.Boot != bootID() {
		return 0, true
	}
	start, ended := startOf(p.PID)
	if start != p.Start {
		return 0, true
	}
	return p.PID, ended
}

// alive is the process recorded in file, or 0 when it has ended.
func alive(file string) int {
	pid, ended := recorded(file)
	if ended {
		return 0
	}
	return pid
}

// kill ends the process recorded in file. It is the first of its namespace, so
// the kernel ends every other process there with it, however detached, and they
// are gone when kill returns: the last thread of the first process waits for
// them, and the process's descriptor says when that one is gone. /proc says so of
// the first thread.
func kill(file string) error {
	pid, _ := recorded(file)
	if pid == 0 {
		return nil
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err == unix.ESRCH {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ending process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
		return fmt.Errorf("ending process %d: %w", pid, err)
	}
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 1000)
		if ready > 0 {
			return nil
		}
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("waiting for the end of process %d: %w", pid, err)
		}
	}
	return fmt.Errorf("process %d does not end", pid)
}
