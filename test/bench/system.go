package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// system is a proxy server and an agent as processes.
type system struct {
	clientAddress string
	agentAddress  string
	healthAddress string // of the server; has its metrics
	relays        []*process
	stopDelay     func()
	stock         bool // konnectivity's
	startAgents   func(role string) (*process, error)
}

func (s *system) stop() {
	if s.stopDelay != nil {
		s.stopDelay()
	}
	for _, p := range s.relays {
		p.stop()
	}
}

// startSystem starts a server and an agent that take konnectivity's flags and
// waits until the agent is connected.
func (w *world) startSystem(name string, at *place, server, agent []string) (*system, error) {
	var taken [6]int
	for i := range taken {
		if err := ports.Fill(&taken[i]); err != nil {
			return nil, err
		}
	}
	on := func(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(taken[port])) }
	s := &system{clientAddress: on("127.0.0.1", 0), agentAddress: on(at.hub, 1), healthAddress: on("127.0.0.1", 2), stock: name == konnectivitySystem}
	s.startAgents = func(role string) (*process, error) { return w.startAgents(role, s.agentAddress) }
	agentPort := taken[1]
	if at.roundTrip > 0 {
		address, stop, err := startDelay(s.agentAddress, at.roundTrip)
		if err != nil {
			return nil, err
		}
		s.stopDelay = stop
		if _, err := fmt.Sscanf(address, "127.0.0.1:%d", &agentPort); err != nil {
			stop()
			return nil, err
		}
		name += "-" + at.roundTrip.String()
	}
	flag := func(name string, port int) string { return fmt.Sprintf("--%s=%d", name, taken[port]) }
	// Dials are routed by host: the cluster is called after what is dialed.
	cluster, _, err := net.SplitHostPort(at.target)
	if err != nil {
		return nil, err
	}
	certificate, err := w.certs.agent(cluster)
	if err != nil {
		return nil, err
	}
	serverArgs := append(server[:len(server):len(server)], "--server-bind-address=127.0.0.1", flag("server-port", 0), "--agent-bind-address="+at.hub, flag("agent-port", 1),
		"--health-bind-address=127.0.0.1", flag("health-port", 2), "--admin-bind-address=127.0.0.1", flag("admin-port", 3), "--enable-profiling", "--v=0",
		"--server-cert="+w.certs.path("server.crt"), "--server-key="+w.certs.path("server.key"), "--server-ca-cert="+w.certs.path("ca.crt"),
		"--cluster-cert="+w.certs.path("server.crt"), "--cluster-key="+w.certs.path("server.key"), "--cluster-ca-cert="+w.certs.path("ca.crt"))
	agentArgs := append(append(at.inside[:len(at.inside):len(at.inside)], agent...), "--proxy-server-host="+at.hub, fmt.Sprintf("--proxy-server-port=%d", agentPort),
		"--health-server-host="+at.edge, flag("health-server-port", 4), "--admin-bind-address="+at.edge, flag("admin-server-port", 5), "--enable-profiling", "--v=0",
		"--sync-interval=100ms", "--sync-interval-cap=1s", "--agent-identifiers=host="+cluster,
		"--ca-cert="+certificate.CA, "--agent-cert="+certificate.Cert, "--agent-key="+certificate.Key)
	for _, program := range []struct {
		role, admin string
		args        []string
	}{{"server", on("127.0.0.1", 3), serverArgs}, {"agent", on(at.edge, 5), agentArgs}} {
		p, _, err := start(w.log(name+"-"+program.role), false, program.args...)
		if err != nil {
			s.stop()
			return nil, err
		}
		p.collect = func() error { return get("http://" + program.admin + "/debug/pprof/heap?gc=1") }
		s.relays = append(s.relays, p)
	}
	if err := waitReady("http://"+on(at.edge, 4)+"/readyz", s.relays); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return s, nil
}

// startAgents starts a process that holds agents of a server.
func (w *world) startAgents(role, to string) (*process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, _, err := start(w.log(role), true, self, "--child="+role, "--dir="+w.dir, "--to="+to)
	if err == nil {
		p.collect = func() error { return p.command("collect") }
	}
	return p, err
}

// builds is the folder of the programs in that of a run.
const builds = "bin"

// build builds a program of a source once.
func (w *world) build(of *source, name, pkg string) (string, error) {
	out := filepath.Join(w.dir, builds, of.name+"-"+name)
	err, built := w.builds[out]
	if !built {
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Dir, cmd.Stderr = of.dir, os.Stderr
		if err = cmd.Run(); err != nil {
			err = fmt.Errorf("building %s of %s: %w", pkg, of.name, err)
		}
		w.builds[out] = err
	}
	return out, err
}

// get asks url and does without the answer.
func get(url string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err := plainhttp.Get(ctx, url)
	return err
}

// waitReady waits until url answers. It gives up when a process has ended.
func waitReady(url string, processes []*process) error {
	var ended error
	err := until(30*time.Second, func() error {
		for _, p := range processes {
			if ended = p.hasEnded(); ended != nil {
				return nil
			}
		}
		return get(url)
	})
	if err = errors.Join(err, ended); err != nil {
		return fmt.Errorf("waiting for a tunnel: %w", err)
	}
	return nil
}

// until asks until there is no error, and returns the last one after limit.
func until(limit time.Duration, ask func() error) error {
	return wait.Poll{Every: 50 * time.Millisecond, For: limit}.Try(context.Background(), ask)
}
