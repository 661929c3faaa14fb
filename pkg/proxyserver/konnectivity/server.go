package konnectivity

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/proxystrategies"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
)

const (
	// keepaliveTimeout is how long a ping may stay unanswered.
	keepaliveTimeout = 10 * time.Second
	// maxHeaders is how long the metadata of a gRPC stream may be, which is kept as long as
	// the stream. An agent's take less than 1 KiB; gRPC's default is 16 MiB.
	maxHeaders = 64 << 10
	// minPingInterval is how often a peer may ping us. With gRPC's default of five
	// minutes, clients that ping more often would lose their connections.
	minPingInterval = 10 * time.Second
	// maxClientStreams bounds the gRPC streams of one connection of a client, which has
	// one for each dial.
	maxClientStreams = 10000
	// packetsBuffered bounds the packets that wait in a stream of konnectivity's server.
	packetsBuffered = 10
)

// New makes a Server.
func New(o Options, core Core) *Server {
	s := &Server{options: o, core: core, agentIDs: map[string]int{}, hosts: map[string]int{}, clusters: map[string]int{}}
	s.clients = grpc.NewServer(append(s.serverOptions(maxClientStreams), grpc.Creds(handshaken{}),
		grpc.ChainStreamInterceptor(s.interceptClient), grpc.ForceServerCodecV2(newPacketCodec()))...)
	var service client.ProxyServiceServer = client.UnimplementedProxyServiceServer{}
	if o.Agents {
		s.backends = server.NewDestHostBackendManager()
		s.inner = server.NewProxyServer(o.ServerID, []proxystrategies.ProxyStrategy{proxystrategies.ProxyStrategyDestHost}, o.ServerCount,
			&server.AgentTokenAuthenticationOptions{}, packetsBuffered)
		s.inner.SetBackendDialTimeout(o.DialTimeout)
		s.inner.BackendManagers, s.inner.Readiness = []server.BackendManager{s.backends}, s.backends
		service = s.inner
		s.connect = newConnectFrontend(s.admitHTTPClient(s.connectOverCarriers(&server.Tunnel{Server: s.inner})))
		s.agents = grpc.NewServer(append(s.serverOptions(maxAgentStreams), grpc.Creds(handshaken{admit: s.countConnection}),
			grpc.ChainStreamInterceptor(s.interceptAgent),
			grpc.ReadBufferSize(0))...) // TLS has a buffer as well
		agent.RegisterAgentServiceServer(s.agents, s.inner)
	}
	client.RegisterProxyServiceServer(s.clients, service)
	return s
}

func (s *Server) serverOptions(streams uint32) []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.MaxConcurrentStreams(streams),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.ConnectionTimeout(prefaceTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: s.options.KeepaliveTime, Timeout: keepaliveTimeout}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPingInterval, PermitWithoutStream: true}),
	}
}

// ServeClients serves gRPC on the listener of a port with TLS until DrainClients.
func (s *Server) ServeClients(listener net.Listener) error {
	err := s.clients.Serve(listener)
	// The drain of HTTP CONNECT closes the port of both, maybe before that of gRPC has begun.
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("serving clients: %w", err)
	}
	return nil
}

// ServeConnect serves HTTP CONNECT until DrainClients.
func (s *Server) ServeConnect(listener net.Listener) error { return s.connect.serve(listener) }

// ServeAgents serves konnectivity's agents until its listener is closed.
func (s *Server) ServeAgents(listener net.Listener) error { return s.agents.Serve(listener) }

// DrainClients takes no new connections, waits for those that are open, and cuts
// them when ctx is done. It reports whether they ended by themselves.
func (s *Server) DrainClients(ctx context.Context) bool {
	quiet := make(chan bool, 1)
	go func() { quiet <- s.connect == nil || s.connect.drain(ctx) }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.clients.GracefulStop()
	}()
	select {
	case <-done:
		return <-quiet
	case <-ctx.Done():
		// Handlers that wait for an agent end when the agents' streams do.
		s.clients.Stop()
		<-quiet
		return false
	}
}

// StopAgents ends the connections of agents.
func (s *Server) StopAgents() {
	if s.agents != nil {
		s.agents.Stop()
	}
}
