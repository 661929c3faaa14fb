//go:build linux

package nodes

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	cgroupFS     = "/sys/fs/cgroup"
	cgroupParent = "/cluster-proxy-lab"
)

// CgroupVersion is 1 or 2.
func CgroupVersion() int {
	if _, err := os.Stat(cgroupFS + "/cgroup.controllers"); err == nil {
		return 2
	}
	return 1
}

// cgroupRoots lists the hierarchies: one for each controller in version 1, a
// single one in version 2.
func cgroupRoots() (out []string) {
	if CgroupVersion() == 2 {
		return []string{cgroupFS}
	}
	entries, _ := os.ReadDir(cgroupFS)
	for _, entry := range entries {
		root := filepath.Join(cgroupFS, entry.Name())
		if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err == nil && entry.IsDir() {
			out = append(out, root)
		}
	}
	return out
}

func makeCgroup(group string) error {
	for _, root := range cgroupRoots() {
		dir := root
		handDown(root, dir)
		for part := range strings.SplitSeq(strings.Trim(group, "/"), "/") {
			parent := dir
			dir = filepath.Join(dir, part)
			if err := os.Mkdir(dir, 0o755); err != nil && !os.IsExist(err) {
				return fmt.Errorf("making control group %s: %w", dir, err)
			}
			inherit(parent, dir)
			favour(dir)
			handDown(root, dir)
		}
	}
	return nil
}

// handDown lets the groups below have every controller, in version 2.
func handDown(root, dir string) {
	if root != cgroupFS {
		return
	}
	controllers, _ := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	for _, c := range strings.Fields(string(controllers)) {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
	}
}

// inherit fills what version 1 leaves empty in a new group.
func inherit(parent, dir string) {
	for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
		if now, err := os.ReadFile(filepath.Join(dir, name)); err != nil || strings.TrimSpace(string(now)) != "" {
			continue
		}
		if value, err := os.ReadFile(filepath.Join(parent, name)); err == nil {
			_ = os.WriteFile(filepath.Join(dir, name), value, 0)
		}
	}
}

// favour gives a group sixteen times the share of the processors that it has by itself. On
// real nodes pods have the machine for themselves; here they would have as much together as
// one thread of the clusters' control planes and of the tests, in version 1, and pods without
// requests would not get to work for seconds.
func favour(dir string) {
	for name, share := range map[string]string{"cpu.shares": "16384", "cpu.weight": "1600"} {
		file := filepath.Join(dir, name)
		if _, err := os.Stat(file); err == nil {
			_ = os.WriteFile(file, []byte(share), 0)
		}
	}
}

// removeCgroup removes a group and those below it, and the ones above it that
// are empty then. Processes that were killed leave theirs a moment later.
func removeCgroup(group string) error {
	deadline := time.Now().Add(10 * time.Second)
	for _, root := range cgroupRoots() {
		top := filepath.Join(root, group)
		for {
			var dirs []string
			_ = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					dirs = append(dirs, path)
				}
				return nil
			})
			for _, dir := range slices.Backward(dirs) {
				_ = syscall.Rmdir(dir)
			}
			if _, err := os.Stat(top); os.IsNotExist(err) {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("removing control group %s: something is still in it", top)
			}
			time.Sleep(50 * time.Millisecond)
		}
		for dir := filepath.Dir(top); len(dir) > len(root); dir = filepath.Dir(dir) {
			_ = syscall.Rmdir(dir)
		}
	}
	return nil
}
