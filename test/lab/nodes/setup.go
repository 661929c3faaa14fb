//go:build linux

package nodes

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
)

// mount gives the machine places of its own for what programs expect at fixed
// paths.
func (m *Machine) mount() error {
	if err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := letGo(); err != nil {
		return err
	}
	steps := []struct {
		source, target, kind string
		flags                uintptr
		data                 string
	}{
		// The kubelet's volumes need this, among ourselves.
		{"none", "/", "", syscall.MS_REC | syscall.MS_SHARED, ""},
		{"proc", "/proc", "proc", syscall.MS_NOSUID | syscall.MS_NODEV | syscall.MS_NOEXEC, ""},
		{"tmpfs", "/run", "tmpfs", syscall.MS_NOSUID | syscall.MS_NODEV, "mode=755"},
		{m.path("varlib"), "/var/lib", "", syscall.MS_BIND, ""},
		{m.path("varlog"), "/var/log", "", syscall.MS_BIND, ""},
	}
	hosts := "127.0.0.1 localhost\n" + m.Address + " " + m.HostName() + "\n"
	for name, address := range m.Hosts {
		hosts += address + " " + name + "\n"
	}
	for name, content := range map[string]string{"hosts": hosts, "resolv.conf": "nameserver " + DNSAddress + "\n"} {
		if err := os.WriteFile(m.path(name), []byte(content), 0o644); err != nil {
			return err
		}
		if info, err := os.Lstat("/etc/" + name); err == nil && info.Mode().IsRegular() {
			steps = append(steps, steps[3])
			steps[len(steps)-1].source, steps[len(steps)-1].target = m.path(name), "/etc/"+name
		}
	}
	for _, dir := range []string{m.path("varlib"), m.path("varlog")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, s := range steps {
		if err := syscall.Mount(s.source, s.target, s.kind, s.flags, s.data); err != nil {
			return fmt.Errorf("mounting %s on %s: %w", s.source, s.target, err)
		}
	}
	for _, dir := range []string{"/run/netns", "/run/lock"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return syscall.Sethostname([]byte(m.HostName()))
}

// DNSAddress is that of the cluster's DNS Service.
const DNSAddress = "10.96.0.10"

// letGo unmounts our copies of other people's mounts, which would keep alive
// what they unmount, such as network namespaces with a name.
func letGo() error {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(strings.Split(strings.TrimSpace(string(info)), "\n")) {
		target := strings.Fields(line)[4]
		if strings.HasPrefix(target, "/run/") || strings.Contains(line, " - nsfs ") {
			_ = syscall.Unmount(target, syscall.MNT_DETACH)
		}
	}
	return nil
}

const fence = `
table inet fence {
	set hub { type ipv4_addr; flags interval; elements = { %s, %s } }
	chain in {
		type filter hook prerouting priority mangle; policy accept;
		iifname "wan0" ct state established,related accept
		iifname "wan0" counter drop
	}
	chain out { # after routing: kube-proxy may have sent it elsewhere
		type filter hook postrouting priority filter; policy accept;
		oifname "wan0" ct state new ip daddr != @hub counter drop
	}
}
`

func (m *Machine) joinNetwork() error {
	if err := run("ip", "link", "set", "lo", "up"); err != nil {
		return err
	}
	for name, value := range map[string]string{"ipv4/ip_forward": "1", "ipv6/conf/wan0/disable_ipv6": "1"} {
		if err := os.WriteFile("/proc/sys/net/"+name, []byte(value), 0); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	// The fence stands before the cable is live.
	if m.Hub != nil {
		file := m.path("fence.nft")
		if err := os.WriteFile(file, fmt.Appendf(nil, fence, m.Hub.Address, m.Hub.poolCIDR()), 0o644); err != nil {
			return err
		}
		if err := run("nft", "-f", file); err != nil {
			return err
		}
	}
	for _, args := range [][]string{
		{"addr", "add", m.Address + "/24", "dev", "wan0"},
		{"link", "set", "wan0", "up"},
		{"route", "add", "default", "via", network + "1"},
		// Every address of the pool is local, and so is answered for on the
		// lab's network; kube-proxy does the rest once a Service owns one.
		{"route", "add", "local", m.poolCIDR(), "dev", "lo"},
	} {
		if err := run("ip", args...); err != nil {
			return err
		}
	}
	return nil
}
