package proxyserver

import (
	"errors"
	"net"

	"golang.org/x/time/rate"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/health"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver/konnectivity"
)

// Server is a proxy server. Make one with New and start it with Run, once.
type Server struct {
	options Options
	logger  klog.Logger // set by Run before anything is served
	metrics *serverMetrics
	health  *health.Server
	servers *serverCount

	registry *agentRegistry
	// clientCarriers are those that clients dialed, to drain them.
	clientCarriers *pool.Pool
	conns          *peerConns
	memory         *memlimit.Gate
	peers          *peers        // nil without any
	untold         chan struct{} // closed when peers are not told of agents here any more
	clientSource   *pki.Reloader
	agentSource    *pki.Reloader
	konnectivity   *konnectivity.Server
	sayLimit       rate.Sometimes // of a cluster's agents

	started chan struct{}
	addrs   Addrs // set before started is closed
}

// Addrs are the addresses that a Server listens on.
type Addrs struct{ Client, Agent, Health, Admin net.Addr }

// Started is closed once every port is open.
func (s *Server) Started() <-chan struct{} { return s.started }

// Addrs are valid once Started is closed.
func (s *Server) Addrs() Addrs { return s.addrs }

func (s *Server) sources() []*pki.Reloader {
	return []*pki.Reloader{s.agentSource, s.clientSource}
}

func (s *Server) checkCertificates() error {
	var problems []error
	for _, source := range s.sources() {
		problems = append(problems, source.Check())
	}
	return errors.Join(problems...)
}

func (s *Server) checkAgents() error {
	if s.konnectivity.Backends()+s.registry.count() == 0 {
		return errors.New("no connection to any proxy agent")
	}
	return nil
}
