//go:build linux

package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"time"
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

// startOf is when a process started, and empty if there is none that runs.
func startOf(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	fields := strings.Fields(string(raw[strings.LastIndex(string(raw), ")")+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

func remember(file string, pid int) error {
	start := startOf(pid)
	if start == "" {
		return errors.New("the process ended at once")
	}
	raw, err := json.Marshal(process{pid, start, bootID()})
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o600)
}

// alive is the process recorded in file, or 0 when it is gone.
func alive(file string) int {
	var p process
	raw, err := os.ReadFile(file)
	if err != nil || json.Unmarshal(raw, &p) != nil || p.Boot != bootID() || startOf(p.PID) != p.Start {
		return 0
	}
	return p.PID
}

// kill ends the process recorded in file. It is the first of its namespace, so
// the kernel ends every other process there with it, however detached.
func kill(file string) error {
	pid := alive(file)
	if pid == 0 {
		return nil
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); alive(file) != 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d does not end", pid)
		}
	}
	return nil
}
