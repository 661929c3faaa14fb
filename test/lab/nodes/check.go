//go:build linux

package nodes

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// CNIDir is where Debian puts the CNI plugins.
const CNIDir = "/usr/lib/cni"

// Missing says in one line what this machine lacks for a lab with nodes, and is
// empty when it lacks nothing.
func Missing() string {
	if os.Geteuid() != 0 {
		return "it makes namespaces, mounts and control groups, and must run as root"
	}
	packages := map[string]bool{}
	for tool, name := range map[string]string{
		"containerd": "containerd", "ctr": "containerd", "runc": "runc", "ip": "iproute2", "tc": "iproute2",
		"nft": "nftables", "iptables": "iptables", "nsenter": "util-linux", "mount": "mount",
	} {
		if _, err := exec.LookPath(tool); err != nil {
			packages[name] = true
		}
	}
	for _, plugin := range []string{"ptp", "host-local", "loopback", "portmap"} {
		if _, err := os.Stat(filepath.Join(CNIDir, plugin)); err != nil {
			packages["containernetworking-plugins"] = true
		}
	}
	if _, err := os.Stat("/bin/busybox"); err != nil {
		packages["busybox-static"] = true
	}
	if len(packages) > 0 {
		var names []string
		for name := range packages {
			names = append(names, name)
		}
		slices.Sort(names)
		return "packages are missing; run: apt-get install --no-install-recommends " + strings.Join(names, " ")
	}
	if len(cgroupRoots()) == 0 {
		return fmt.Sprintf("no control groups are mounted under %s", cgroupFS)
	}
	return ""
}
