package proxyagent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/http/httpproxy"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent/metrics"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// carrierDialer dials carriers to the proxy servers, and opens the connections that
// these ask for on them. servers.go decides which server gets how many.
type carrierDialer struct {
	address          string // of the proxy servers
	serverName       string
	session          string // the agent ID
	identifiers      string // the hosts that lead to the agent
	process          string // see agentapi.ProcessHeader
	source           *pki.Reloader
	decide           decision
	handler          *connListener // nil if there is none
	tcp              dial.TCP      // to proxy servers and targets
	dialer           dial.StaleDialer
	handshakes       *handshakes // with control carriers
	protocols        []string    // for ALPN, besides those that are always named
	pingAfter        time.Duration
	handshakeTimeout time.Duration
	targetTimeout    time.Duration // for a target to accept a connection
	serving          atomic.Int64  // connections on carriers
	ending           atomic.Bool   // new ones are refused
	memory           *memlimit.Gate
	denied           *prometheus.CounterVec
}

// dial makes one carrier. Behind a load balancer it leads to any of the proxy
// servers, and PeerName says to which; one that does not know this agent yet
// closes it. A server of konnectivity's has none (carrier.ErrNoCarriers): the
// connections of konnectivity's streams serve instead.
func (c *carrierDialer) dial(ctx context.Context) (*carrier.Carrier, error) {
	ctx, cancel := context.WithTimeout(ctx, c.handshakeTimeout)
	defer cancel()
	raw, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	hello := carrier.Hello{Version: carrier.Version, Session: c.session, Features: []string{carrier.FeatureName, agentapi.ProcessFeature(c.process)}}
	made, err := carrier.DialTLS(ctx, raw, c.tlsConfig(), hello, *c.carriers())
	if err != nil {
		return nil, fmt.Errorf("dialing a carrier to %q: %w", c.address, pki.Explain(err))
	}
	return made, nil
}

// carriers configures the carriers that the agent dials.
func (c *carrierDialer) carriers() *carrier.Config {
	return &carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(c.serveOpen)}
}

// tlsConfig is for one connection that may become a carrier.
func (c *carrierDialer) tlsConfig() *tls.Config {
	config := c.source.ClientConfig(c.serverName)
	config.NextProtos = append([]string{carrier.ALPN, "h2"}, c.protocols...)
	return config
}

var errEnding = &carrier.Error{Code: carrier.Draining, Message: "the agent stops"}

// serveOpen dials what the destination policy makes of a request, and carries
// bytes until both sides have ended.
func (c *carrierDialer) serveOpen(ctx context.Context, request *carrier.Pending) {
	if c.ending.Load() {
		_ = request.Refuse(errEnding)
		return
	}
	if err := c.memory.Err(); err != nil {
		_ = request.Refuse(&carrier.Error{Code: carrier.Overloaded, Message: err.Error()})
		return
	}
	destination, err := c.decide(request.Network, request.Address)
	if err != nil {
		c.noteDenied(ctx, request.Network, request.Address, err)
		_ = request.Refuse(&carrier.Error{Code: carrier.Denied, Message: err.Error()})
		return
	}
	if destination.Handler {
		conn, err := request.Accept(carrier.Endpoints{Local: destination.Address, Remote: destination.Address})
		if err == nil {
			c.count(func() { c.handler.serve(conn, request.Carrier().PeerName(), request.Via) })
		}
		return
	}
	dialer := &net.Dialer{Timeout: c.targetTimeout}
	began := time.Now()
	target, err := dialer.DialContext(ctx, "tcp", destination.Address)
	if err != nil {
		_ = request.Refuse(targetError(err))
		return
	}
	target = c.tcp.Tune(target)
	metrics.Metrics.ObserveDialLatency(time.Since(began))
	conn, err := request.Accept(carrier.Endpoints{Local: target.LocalAddr().String(), Remote: target.RemoteAddr().String()})
	if err != nil {
		_ = target.Close()
		return
	}
	c.count(func() { _ = carrier.Relay(conn, target) })
}

// count counts a connection while it is open.
func (c *carrierDialer) count(serve func()) {
	metrics.Metrics.EndpointConnectionInc()
	c.serving.Add(1)
	serve()
	metrics.Metrics.EndpointConnectionDec()
	c.serving.Add(-1)
}

// targetError returns the part of a dial's error that a client can act on.
func targetError(err error) *carrier.Error {
	code := carrier.Unreachable
	reason := metrics.DialFailureUnknown
	var netErr net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		code = carrier.Refused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		code, reason = carrier.TimedOut, metrics.DialFailureTimeout
	}
	metrics.Metrics.ObserveDialFailure(reason)
	return &carrier.Error{Code: code, Message: err.Error()}
}

// connect dials the proxy servers' address, through the proxy that HTTPS_PROXY
// and NO_PROXY say, as gRPC does for the streams.
func (c *carrierDialer) connect(ctx context.Context) (net.Conn, error) {
	proxy, err := proxyFor(c.address, httpproxy.FromEnvironment())
	if err != nil {
		return nil, err
	}
	if proxy == nil {
		conn, err := c.dialer.DialContext(ctx, c.address)
		if err != nil {
			return nil, err
		}
		return c.tcp.Tune(conn), nil
	}
	conn, err := c.dialer.DialContext(ctx, proxy.address)
	if err != nil {
		return nil, fmt.Errorf("dialing proxy %q: %w", proxy.address, err)
	}
	conn = c.tcp.Tune(conn)
	tunnel, err := connect.Ask(ctx, conn, c.address, proxy.header)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("asking proxy %q for a tunnel to %q: %w", proxy.address, c.address, err)
	}
	return tunnel, nil
}
