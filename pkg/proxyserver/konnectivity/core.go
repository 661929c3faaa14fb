package konnectivity

import (
	"context"
	"crypto/tls"
	"sync"
	"time"

	"google.golang.org/grpc"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

// Core is the proxy server to which the clients and agents of this protocol come. All fields must
// be set.
type Core struct {
	// AdmitClient reports why a client is refused.
	AdmitClient func(conn *tls.Conn) error
	// Open opens a connection on a carrier. Its errors are *carrier.Error.
	Open func(ctx context.Context, request carrier.OpenRequest) (*carrier.Conn, error)
	// BeginConnection returns what to call when a client's connection to target has ended,
	// with the bytes that the client sent and received, or -1.
	BeginConnection func(conn *tls.Conn, target string) (ended func(sent, received int64))
	// Overloaded is an error while there is no memory for more.
	Overloaded func() error
	// AdmitAgent returns the cluster of an agent's certificate, which must allow the ID
	// and the identifiers that the agent declares, or why the agent is refused.
	AdmitAgent func(conn *tls.Conn, ids, identifiers []string) (cluster string, err error)
	// Serves reports whether an agent with carriers is here for an address.
	Serves func(address string) bool
}

// Options of a Server.
type Options struct {
	ServerID    string
	ServerCount int
	// Agents has konnectivity's own agents served, and HTTP CONNECT.
	Agents bool
	// DialTimeout bounds a dial from end to end.
	DialTimeout time.Duration
	// KeepaliveTime is the silence after which a peer is pinged.
	KeepaliveTime time.Duration
}

// Server serves konnectivity's clients, and its agents if Options.Agents says so.
type Server struct {
	options Options
	core    Core
	clients *grpc.Server

	// The fields below are nil without Options.Agents.
	connect  *connectFrontend
	agents   *grpc.Server
	inner    *server.ProxyServer
	backends *server.DestHostBackendManager

	mu       sync.Mutex
	agentIDs map[string]int // streams by cluster and agent ID: an agent may have two for a while
	hosts    map[string]int // streams of agents by the hosts that lead to them
	clusters map[string]int // connections of agents
}
