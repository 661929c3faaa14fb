//go:build linux

package nodes

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// settings are those of the whole machine. The kubelet sets the zeros itself,
// which is why they are noted; the other is raised: each cluster takes 21
// inotify instances, and the usual limit is 128.
var settings = map[string]int{
	"vm/overcommit_memory": 0, "vm/panic_on_oom": 0, "kernel/panic": 0, "kernel/panic_on_oops": 0,
	"kernel/keys/root_maxkeys": 0, "kernel/keys/root_maxbytes": 0,
	"fs/inotify/max_user_instances": 4096,
}

// settingsFile keeps what was there before the first lab.
const settingsFile = "/run/cluster-proxy-lab-settings.json"

func raiseSettings() error {
	if _, err := os.Stat(settingsFile); err != nil {
		was := map[string]string{}
		for name := range settings {
			if value, err := os.ReadFile("/proc/sys/" + name); err == nil {
				was[name] = strings.TrimSpace(string(value))
			}
		}
		raw, err := json.Marshal(was)
		if err != nil {
			return err
		}
		if err := os.WriteFile(settingsFile, raw, 0o600); err != nil {
			return err
		}
	}
	for name, want := range settings {
		value, _ := os.ReadFile("/proc/sys/" + name)
		if now, err := strconv.Atoi(strings.TrimSpace(string(value))); err != nil || now >= want {
			continue
		}
		if err := os.WriteFile("/proc/sys/"+name, []byte(strconv.Itoa(want)), 0); err != nil {
			return fmt.Errorf("raising %s to %d: %w", name, want, err)
		}
	}
	return nil
}

// restoreSettings puts back what was there, unless another lab is.
func restoreSettings() error {
	for _, root := range cgroupRoots() {
		if _, err := os.Stat(filepath.Join(root, cgroupParent)); err == nil {
			return nil
		}
	}
	raw, err := os.ReadFile(settingsFile)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	var was map[string]string
	if err := errors.Join(err, json.Unmarshal(raw, &was)); err != nil {
		return fmt.Errorf("reading %s: %w", settingsFile, err)
	}
	var errs []error
	for name, value := range was {
		if now, _ := os.ReadFile("/proc/sys/" + name); strings.TrimSpace(string(now)) != value {
			errs = append(errs, os.WriteFile("/proc/sys/"+name, []byte(value), 0))
		}
	}
	return errors.Join(append(errs, os.Remove(settingsFile))...)
}
