package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

const (
	shapedHub  = "198.51.100.1" // of TEST-NET-2 (RFC 5737), which nobody routes
	shapedEdge = "198.51.100.2"
)

// shapedLink is a network namespace that the kernel lets 1 Gbit/s through.
type shapedLink struct {
	namespace string
	target    *process
}

// shape makes the link, and starts a target behind it.
func (w *world) shape(at *place) (*shapedLink, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("shaping a link needs root")
	}
	name := fmt.Sprint("cp-bench-", os.Getpid())
	l := &shapedLink{namespace: name}
	near, far := fmt.Sprint("cpb", os.Getpid()), fmt.Sprint("cpe", os.Getpid())
	for _, line := range []string{
		"ip netns add " + name,
		"ip link add " + near + " type veth peer name " + far + " netns " + name,
		"ip addr add " + shapedHub + "/30 dev " + near,
		"ip link set " + near + " up",
		"ip -n " + name + " addr add " + shapedEdge + "/30 dev " + far,
		"ip -n " + name + " link set " + far + " up",
		"ip -n " + name + " link set lo up",
		"tc qdisc add dev " + near + " root tbf rate 1gbit burst 256kb latency 20ms",
		"tc -n " + name + " qdisc add dev " + far + " root tbf rate 1gbit burst 256kb latency 20ms",
	} {
		args := strings.Fields(line)
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			l.close()
			return nil, fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	self, err := os.Executable()
	if err != nil {
		l.close()
		return nil, err
	}
	at.hub, at.edge, at.inside = shapedHub, shapedEdge, []string{"ip", "netns", "exec", name}
	if l.target, at.target, err = start(w.log("target"), true, append(at.inside[:3:3], name, self, "--child=target", "--listen="+shapedEdge+":0")...); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// close takes the namespace away, and the network cards with it.
func (l *shapedLink) close() {
	if l.target != nil {
		l.target.stop()
	}
	_ = exec.Command("ip", "netns", "del", l.namespace).Run()
}
