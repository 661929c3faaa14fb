package proxyagent

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/net/http/httpproxy"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/memlimit"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

// decision returns what to dial for a request, or an error if that is denied.
type decision func(network, address string) (policy.Target, error)

// carrierDialer dials carriers to the proxy servers, and opens the connections that
// these ask for on them. servers.go decides which server gets how many.
type carrierDialer struct {
	address          string // of the proxy servers
	serverName       string
	agentID          string
	identifiers      string // the hosts that lead to the agent
	process          string // see agentapi.ProcessHeader
	source           *pki.Reloader
	decide           decision
	handler          *connListener // nil if there is none
	tcp              dial.TCP      // to proxy servers and targets
	dialer           dial.StaleDialer
	handshakes       *handshakes // of control sessions
	pingAfter        time.Duration
	handshakeTimeout time.Duration
	targetTimeout    time.Duration // for a target to accept a connection
	ending           atomic.Bool   // new connections are refused
	memory           *memlimit.Gate
	metrics          *agentMetrics
}

// dialCarrier makes one carrier. Behind a load balancer it leads to any of the proxy
// servers, and PeerName says to which; one that does not know this agent yet
// closes it.
func (c *carrierDialer) dialCarrier(ctx context.Context) (*carrier.Carrier, error) {
	ctx, cancel := context.WithTimeout(ctx, c.handshakeTimeout)
	defer cancel()
	raw, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	hello := carrier.Hello{Session: c.agentID, Features: []string{agentapi.ProcessFeature(c.process)}}
	made, err := carrier.DialTLS(ctx, raw, c.tlsConfig(), hello, *c.carrierConfig())
	if err != nil {
		return nil, fmt.Errorf("dialing a carrier to %q: %w", c.address, pki.Explain(err))
	}
	return made, nil
}

// dialSession makes a control session with any of the proxy servers, and says which features
// the agent has.
func (c *carrierDialer) dialSession(ctx context.Context, features ...string) (*carrier.Session, error) {
	ctx, cancel := context.WithTimeout(ctx, c.handshakeTimeout)
	defer cancel()
	raw, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := carrier.ShakeHands(ctx, raw, c.tlsConfig())
	if err != nil {
		if errors.Is(err, carrier.ErrNoCarriers) {
			return nil, fmt.Errorf("dialing a control session to %q: %w; for a server of konnectivity's run konnectivity's own agent", c.address, err)
		}
		c.handshakes.noteFailure(err)
		return nil, fmt.Errorf("dialing a control session to %q: %w", c.address, pki.Explain(err))
	}
	hello := carrier.Hello{Session: c.agentID, Identifiers: c.identifiers, Features: append(features, agentapi.ProcessFeature(c.process))}
	session, err := carrier.DialSession(ctx, conn, hello, carrier.SessionConfig{PingAfter: c.pingAfter, Carrier: c.carrierConfig()})
	c.handshakes.noteFirstRead(err)
	if err != nil {
		return nil, fmt.Errorf("asking %q for a control session: %w", c.address, pki.Explain(err))
	}
	return session, nil
}

// carrierConfig configures the carriers that the agent dials.
func (c *carrierDialer) carrierConfig() *carrier.Config {
	return &carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(c.serveOpen)}
}

// tlsConfig is for one connection that may become a carrier.
func (c *carrierDialer) tlsConfig() *tls.Config {
	config := c.source.ClientConfig(c.serverName)
	config.NextProtos = []string{carrier.ALPN, "h2"} // a server of konnectivity's takes the latter, and is told from a broken one
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
			c.countWhile(func() { c.handler.serve(conn, request.Carrier().PeerName(), request.Via) })
		}
		return
	}
	dialer := &net.Dialer{Timeout: c.targetTimeout}
	began := time.Now()
	target, err := dialer.DialContext(ctx, "tcp", destination.Address)
	if err != nil {
		_ = request.Refuse(c.targetError(err))
		return
	}
	target = c.tcp.Tune(target)
	c.metrics.dialSeconds.Observe(time.Since(began).Seconds())
	conn, err := request.Accept(carrier.Endpoints{Local: target.LocalAddr().String(), Remote: target.RemoteAddr().String()})
	if err != nil {
		_ = target.Close()
		return
	}
	c.countWhile(func() { _ = carrier.Relay(conn, target) })
}

func (c *carrierDialer) noteDenied(ctx context.Context, network, address string, err error) {
	reason := "unknown"
	var denied *policy.Denied
	if errors.As(err, &denied) {
		reason = denied.Reason
	}
	c.metrics.dialsRejected.WithLabelValues(reason).Inc()
	klog.FromContext(ctx).Info("Denied a dial", "network", network, "address", address, "reason", reason)
}

// countWhile counts a connection while it is served.
func (c *carrierDialer) countWhile(serve func()) {
	c.metrics.connections.Inc()
	defer c.metrics.connections.Dec()
	serve()
}

// targetError returns the part of a dial's error that a client can act on.
func (c *carrierDialer) targetError(err error) *carrier.Error {
	code := carrier.Unreachable
	reason := "unknown"
	var netErr net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		code = carrier.Refused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &netErr) && netErr.Timeout():
		code, reason = carrier.TimedOut, "timeout"
	}
	c.metrics.dialFailures.WithLabelValues(reason).Inc()
	return &carrier.Error{Code: code, Message: err.Error()}
}

// connListener is the listener by which the handler serves connections on carriers
// as they are. Over loopback each would be copied twice more, by two more goroutines.
type connListener struct{ *connect.Queue }

func newConnListener(address net.Addr) *connListener {
	return &connListener{connect.NewQueue(address)}
}

// serve hands the handler a connection that comes through proxy servers, and returns
// when that has ended.
func (h *connListener) serve(conn *carrier.Conn, through ...string) {
	handed := &handedConn{Conn: conn, through: through, ended: make(chan struct{})}
	if h.Hand(handed) {
		<-handed.ended
	} else {
		_ = conn.Close() // the agent ends
	}
}

// handedConn says when the handler is done with it.
type handedConn struct {
	*carrier.Conn
	through []string // server IDs
	once    sync.Once
	ended   chan struct{}
}

func (c *handedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { close(c.ended) })
	return err
}

// Abort ends the connection as one that was cut off.
func (c *handedConn) Abort(reason error) {
	c.Conn.Abort(reason)
	_ = c.Close()
}

// connect dials the proxy servers' address, through the proxy that HTTPS_PROXY
// and NO_PROXY say.
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
	return c.connectBy(ctx, proxy)
}

// connectBy dials the proxy servers' address through a proxy.
func (c *carrierDialer) connectBy(ctx context.Context, proxy *httpsProxy) (net.Conn, error) {
	conn, err := c.dialer.DialContext(ctx, proxy.address)
	if err != nil {
		return nil, fmt.Errorf("dialing proxy %q: %w", proxy.address, err)
	}
	conn = c.tcp.Tune(conn)
	if proxy.tls != nil {
		secured := tls.Client(conn, proxy.tls)
		if err := secured.HandshakeContext(ctx); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("TLS with proxy %q: %w", proxy.address, err)
		}
		conn = secured
	}
	tunnel, err := connect.Ask(ctx, conn, c.address, proxy.header)
	if err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("asking proxy %q for a tunnel to %q: %w", proxy.address, c.address, err)
	}
	return tunnel, nil
}

// httpsProxy is a proxy that takes CONNECT.
type httpsProxy struct {
	address string
	header  http.Header // of CONNECT
	tls     *tls.Config // with the proxy, verified with the system's CAs; nil for none
}

// proxyFor is the proxy for an address, or nil for none.
func proxyFor(address string, config *httpproxy.Config) (*httpsProxy, error) {
	u, err := config.ProxyFunc()(&url.URL{Scheme: "https", Host: address})
	if err != nil || u == nil {
		return nil, err
	}
	p := &httpsProxy{address: u.Host, header: http.Header{}}
	port := "80"
	switch u.Scheme {
	case "http":
	case "https":
		port = "443"
		p.tls = &tls.Config{ServerName: u.Hostname(), MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}}
	default:
		return nil, fmt.Errorf("HTTPS_PROXY has scheme %q: it must be http or https", u.Scheme)
	}
	if u.Port() == "" {
		p.address = net.JoinHostPort(u.Hostname(), port)
	}
	if password, ok := u.User.Password(); ok {
		p.header.Set("Proxy-Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+password)))
	}
	return p, nil
}
