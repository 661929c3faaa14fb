package proxyserver

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"

	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const (
	// prefaceTimeout is how long a client may take for the first bytes of gRPC or HTTP
	// after the TLS handshake.
	prefaceTimeout = 10 * time.Second
	// keepaliveTimeout is how long a ping may stay unanswered.
	keepaliveTimeout = 10 * time.Second
	// maxHeaders is how long the metadata of a gRPC stream may be, which is kept as long as
	// the stream. An agent's take less than 1 KiB; gRPC's default is 16 MiB.
	maxHeaders = 64 << 10
	// minPingInterval is how often a peer may ping us. With gRPC's default of five
	// minutes, clients that ping more often would lose their connections.
	minPingInterval = 10 * time.Second
)

// agentRest is handshakes.Options' Rest on the agent port: after a handshake slot was
// held for some time, it stays unused for agentRest times as long. Users do not wait
// for most connections of agents, as there are spare ones; but a thousand agents that
// reconnect together would take the processor from live traffic for seconds.
const agentRest = 16

// ports are the listeners besides the health server's own.
type ports struct {
	client, agent, admin net.Listener
	arrivals             *health.Arrivals // of clients
	muxes                []*muxListener   // of client and agent, where they have TLS
}

// mux puts a listener that tells carriers apart in front of one of ports.
func (s *Server) mux(p *ports, listener net.Listener, source *pki.Reloader, protocol string, rest int, carriers func(*tls.Conn)) *muxListener {
	mux := newMuxListener(listener, source, protocol, s, rest, carriers)
	p.muxes = append(p.muxes, mux)
	return mux
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func (s *Server) listen(ctx context.Context) (p *ports, err error) {
	p = &ports{}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if s.options.UDSName != "" {
		p.client, err = listenUnix(ctx, s.options.UDSName, s.options.DeleteUDSFile)
	} else {
		p.client, err = listenTCP(ctx, "clients", address(s.options.ServerBindAddress, s.options.ServerPort))
	}
	if err != nil {
		return p, err
	}
	p.arrivals = &health.Arrivals{Listener: p.client}
	p.client = p.arrivals
	if p.agent, err = listenTCP(ctx, "agents", address(s.options.AgentBindAddress, s.options.AgentPort)); err != nil {
		return p, err
	}
	p.admin, err = listenTCP(ctx, "administration", address(s.options.AdminBindAddress, s.options.AdminPort))
	return p, err
}

func (p *ports) close() {
	for _, listener := range []net.Listener{p.client, p.agent, p.admin} {
		if listener != nil {
			_ = listener.Close()
		}
	}
}

func listenTCP(ctx context.Context, what, address string) (net.Listener, error) {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening for %s on %q: %w", what, address, err)
	}
	return listener, nil
}

// listenUnix lets the user and the group connect. The usual umask of processes keeps
// all others out until the mode is set.
func listenUnix(ctx context.Context, path string, deleteFirst bool) (net.Listener, error) {
	if deleteFirst {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("deleting the old socket: %w", err)
		}
	}
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("listening for clients on %q: %w", path, err)
	}
	if err := os.Chmod(path, 0o770); err != nil {
		_ = listener.Close()
		return nil, fmt.Errorf("restricting the socket: %w", err)
	}
	return listener, nil
}

// newFrontend makes the server for clients.
func (s *Server) newFrontend(p *ports) frontend {
	http := s.options.Mode == server.ModeHTTPConnect
	if s.clientSource != nil {
		protocol := "h2"
		if http {
			protocol = "http/1.1"
		}
		p.client = s.mux(p, p.client, s.clientSource, protocol, 0, s.takeClientCarrier)
	}
	if http {
		return newConnectFrontend(p.client, s.admitHTTPClient(s.connectOverCarriers(&server.Tunnel{Server: s.konnectivity})))
	}
	options := append(serverOptions(s.options.FrontendKeepaliveTime, maxClientStreams), grpc.ChainStreamInterceptor(s.interceptClient), grpc.ForceServerCodecV2(newPacketCodec()))
	if s.clientSource != nil {
		options = append(options, grpc.Creds(handshaken{}))
	}
	frontend := &grpcFrontend{server: grpc.NewServer(options...), listener: p.client}
	client.RegisterProxyServiceServer(frontend.server, s.konnectivity)
	return frontend
}

func (s *Server) newAgentServer(p *ports) *grpc.Server {
	mux := s.mux(p, p.agent, s.agentSource, "h2", agentRest, s.takeAgentCarrier)
	p.agent, s.registry.expect = mux, mux.shaking.Expect
	options := append(serverOptions(s.options.KeepaliveTime, maxAgentStreams),
		grpc.ChainStreamInterceptor(s.interceptAgent), grpc.Creds(handshaken{}),
		// An agent's stream is mostly silent, and there are thousands; TLS has a
		// buffer as well.
		grpc.SharedWriteBuffer(true), grpc.ReadBufferSize(0))
	agents := grpc.NewServer(options...)
	agent.RegisterAgentServiceServer(agents, s.konnectivity)
	return agents
}

func serverOptions(keepaliveTime time.Duration, streams uint32) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(streams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(prefaceTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: keepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
	}
}
