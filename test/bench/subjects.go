package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// subject is one way to reach the target.
type subject struct {
	name   string
	dial   func(ctx context.Context) (net.Conn, error)
	relays []*process
	close  func()
}

// world is what all subjects share.
type world struct {
	dir    string
	certs  certFiles
	target string // host:port of the target
}

func newWorld(dir string) (*world, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go serveTarget(l)
	w := &world{dir: dir, certs: certFiles(dir), target: l.Addr().String()}
	return w, w.certs.make()
}

func (w *world) log(name string) string { return filepath.Join(w.dir, name+".log") }

func (w *world) direct() (*subject, error) {
	return &subject{name: "direct", dial: func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", w.target)
	}, close: func() {}}, nil
}

// startEdge starts the half of the bare relay that is beside the target: TLS on
// one side, TCP on the other.
func (w *world) startEdge(name string) (*process, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	return start(w.log(name), true, self, "--relay=edge", "--dir="+w.dir, "--to="+w.target)
}

func (w *world) bareRelay() (*subject, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	edge, edgeAddress, err := w.startEdge("relay-edge")
	if err != nil {
		return nil, err
	}
	hub, hubAddress, err := start(w.log("relay-hub"), true, self, "--relay=hub", "--dir="+w.dir, "--to="+edgeAddress)
	if err != nil {
		edge.stop()
		return nil, err
	}
	_, clientTLS, err := w.certs.configs()
	if err != nil {
		return nil, err
	}
	dialer := &tls.Dialer{Config: clientTLS}
	return &subject{
		name:   "bare relay",
		dial:   func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", hubAddress) },
		relays: []*process{hub, edge},
		close:  func() { hub.stop(); edge.stop() },
	}, nil
}

// system is a proxy server and an agent as processes.
type system struct {
	clientAddress string
	relays        []*process
	stopDelay     func()
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
// waits until the agent is connected. The agent is a round trip away.
func (w *world) startSystem(name string, roundTrip time.Duration, server, agent []string) (*system, error) {
	ports, err := freePorts(6)
	if err != nil {
		return nil, err
	}
	s := &system{clientAddress: fmt.Sprintf("127.0.0.1:%d", ports[0])}
	agentPort := ports[1]
	if roundTrip > 0 {
		address, stop, err := startDelay(fmt.Sprintf("127.0.0.1:%d", ports[1]), roundTrip)
		if err != nil {
			return nil, err
		}
		s.stopDelay = stop
		if _, err := fmt.Sscanf(address, "127.0.0.1:%d", &agentPort); err != nil {
			stop()
			return nil, err
		}
		name += "-" + roundTrip.String()
	}
	flag := func(name string, port int) string { return fmt.Sprintf("--%s=%d", name, ports[port]) }
	serverArgs := append(server[1:], "--server-bind-address=127.0.0.1", flag("server-port", 0), "--agent-bind-address=127.0.0.1", flag("agent-port", 1),
		"--health-bind-address=127.0.0.1", flag("health-port", 2), "--admin-bind-address=127.0.0.1", flag("admin-port", 3), "--v=0",
		"--server-cert="+w.certs.path("server.crt"), "--server-key="+w.certs.path("server.key"), "--server-ca-cert="+w.certs.path("ca.crt"),
		"--cluster-cert="+w.certs.path("server.crt"), "--cluster-key="+w.certs.path("server.key"), "--cluster-ca-cert="+w.certs.path("ca.crt"))
	agentArgs := append(agent[1:], "--proxy-server-host=127.0.0.1", fmt.Sprintf("--proxy-server-port=%d", agentPort), "--health-server-host=127.0.0.1", flag("health-server-port", 4),
		"--admin-bind-address=127.0.0.1", flag("admin-server-port", 5), "--v=0", "--sync-interval=100ms", "--sync-interval-cap=1s",
		"--ca-cert="+w.certs.path("ca.crt"), "--agent-cert="+w.certs.path("client.crt"), "--agent-key="+w.certs.path("client.key"))
	for _, program := range []struct {
		role, path string
		args       []string
	}{{"server", server[0], serverArgs}, {"agent", agent[0], agentArgs}} {
		p, _, err := start(w.log(name+"-"+program.role), false, program.path, program.args...)
		if err != nil {
			s.stop()
			return nil, err
		}
		s.relays = append(s.relays, p)
	}
	if err := waitReady(fmt.Sprintf("http://127.0.0.1:%d/readyz", ports[4])); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w; logs are in %s", name, err, w.dir)
	}
	return s, nil
}

// stock is konnectivity's own server and agent, built from the module that
// go.mod names, with konnectivity's client.
func (w *world) stock(roundTrip time.Duration) (*subject, error) {
	for _, name := range []string{"server", "agent"} {
		if err := goBuild(filepath.Join(w.dir, "konnectivity-"+name), "sigs.k8s.io/apiserver-network-proxy/cmd/"+name); err != nil {
			return nil, err
		}
	}
	s, err := w.startSystem("konnectivity", roundTrip, []string{filepath.Join(w.dir, "konnectivity-server")}, []string{filepath.Join(w.dir, "konnectivity-agent")})
	if err != nil {
		return nil, err
	}
	return w.withStockClient("konnectivity", s)
}

// ours builds our binary and starts our server and agent once for both clients.
func (w *world) ours(roundTrip time.Duration) (stockClient, ownClient *subject, err error) {
	binary := filepath.Join(w.dir, "cluster-proxy")
	if err := goBuild(binary, "open-cluster-management.io/cluster-proxy/cmd/cluster-proxy"); err != nil {
		return nil, nil, err
	}
	s, err := w.startSystem("ours", roundTrip, []string{binary, "proxy-server"}, []string{binary, "proxy-agent"})
	if err != nil {
		return nil, nil, err
	}
	if stockClient, err = w.withStockClient("ours, stock client", s); err != nil {
		return nil, nil, err
	}
	dialer, err := tunnel.FromFiles(s.clientAddress, w.certs.path("ca.crt"), w.certs.path("client.crt"), w.certs.path("client.key"))
	if err != nil {
		return nil, nil, err
	}
	return stockClient, &subject{
		name:   "ours, our dialer",
		dial:   func(ctx context.Context) (net.Conn, error) { return dialer.DialContext(ctx, "tcp", w.target) },
		relays: s.relays,
		close:  func() { dialer.Close() },
	}, nil
}

func (w *world) withStockClient(name string, s *system) (*subject, error) {
	_, clientTLS, err := w.certs.configs()
	if err != nil {
		return nil, err
	}
	transport := grpc.WithTransportCredentials(credentials.NewTLS(clientTLS))
	return &subject{
		name: name,
		dial: func(ctx context.Context) (net.Conn, error) {
			single, err := konnectivity.CreateSingleUseGrpcTunnel(ctx, s.clientAddress, transport)
			if err != nil {
				return nil, err
			}
			return single.DialContext(ctx, "tcp", w.target)
		},
		relays: s.relays,
		close:  s.stop,
	}, nil
}

func goBuild(out, pkg string) error {
	cmd := exec.Command("go", "build", "-o", out, pkg)
	cmd.Stderr = os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %s: %w", pkg, err)
	}
	return nil
}

func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

func waitReady(url string) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("%s answers %d", url, resp.StatusCode)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waiting for a tunnel: %w", err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}
