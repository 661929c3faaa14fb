package proxyagent

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/apihandler"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/oidc"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

// startHandler serves the proxy API's requests and returns what may be dialed, the handler
// included. Connections come from carriers, by the connListener. The listener serves processes
// on the same address that hold the proxy API's certificate, such as tests.
func (a *Agent) startHandler(serving context.Context, group *errgroup.Group, cluster *rest.Config) (decision, *connListener, error) {
	o := a.options
	apiServer, err := apiServerAddress(cluster)
	if err != nil {
		return nil, nil, err
	}
	services, running, err := a.services(cluster)
	if err != nil {
		return nil, nil, err
	}
	for _, run := range running {
		group.Go(func() error { return run(serving) })
	}
	access := a.startAccess(serving, group)
	shown, err := a.shownMetrics()
	if err != nil {
		return nil, nil, err
	}
	server, err := apihandler.NewServer(cluster, o.tcp(), a.source, services, access, apihandler.Metrics{Registry: a.registry, Agent: shown})
	if err != nil {
		return nil, nil, err
	}
	server.Handler, server.ConnContext, server.ConnState = a.conns.handler(server.Handler), a.conns.via, a.conns.watch
	a.handler = server
	address := net.JoinHostPort(o.HandlerBindAddress, strconv.Itoa(o.HandlerPort))
	var lc net.ListenConfig
	listener, err := lc.Listen(serving, "tcp", address)
	if err != nil {
		return nil, nil, fmt.Errorf("listening for the proxy API's requests on %q: %w", address, err)
	}
	direct := newConnListener(listener.Addr())
	for _, l := range []net.Listener{listener, direct} {
		group.Go(func() error {
			stop := context.AfterFunc(serving, func() { _ = server.Close() })
			defer stop()
			if err := server.ServeTLS(connect.Listener{Listener: l}, "", ""); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serving the proxy API's requests: %w", err)
			}
			return nil
		})
	}
	destinations := policy.Policy{
		Cluster:        o.ClusterName,
		AgentNamespace: o.AgentInstallNamespace,
		KubeAPIServer:  apiServer,
		Handler:        listener.Addr().String(),
	}
	return capped(destinations, access.Owner), direct, nil
}

// apiServerAddress is the host:port of the kube-apiserver.
func apiServerAddress(config *rest.Config) (string, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("parsing the address of the kube-apiserver %q: %w", config.Host, err)
	}
	if base.Port() != "" {
		return base.Host, nil
	}
	return net.JoinHostPort(base.Hostname(), defaultPort(base)), nil
}

func defaultPort(u *url.URL) string {
	if u.Scheme == "http" {
		return "80"
	}
	return "443"
}

// startAccess starts what the handler asks about identities.
func (a *Agent) startAccess(serving context.Context, group *errgroup.Group) apihandler.Access {
	owner := ownerpolicy.NewFolder(a.options.OwnerPolicy, a.registry)
	owner.Load()
	group.Go(func() error { return owner.Run(serving) })
	access := apihandler.Access{Owner: owner.Policy, NoHubUsers: !a.options.EnableImpersonation, OnHub: a.options.OnHub, ExtraKeys: a.options.ExtraKeys}
	if a.options.OIDC.IssuerURL != "" {
		provider := oidc.New(a.options.OIDC)
		group.Go(func() error { return provider.Run(serving) })
		access.OIDC = provider
	}
	return access
}

// capped refuses new end-to-end connections to the kube-apiserver, whose requests the
// agent cannot see, as soon as the owner caps anything. The handler still accepts
// connections, since it checks each request.
func capped(destinations policy.Policy, owner func() (ownerpolicy.Policy, error)) decision {
	return func(network, address string) (policy.Target, error) {
		target, err := destinations.Target(network, address)
		if err != nil || target.Handler {
			return target, err
		}
		if caps, err := owner(); err != nil || caps.Caps() {
			return policy.Target{}, &policy.Denied{Network: network, Address: address, Reason: "owner"}
		}
		return target, nil
	}
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
