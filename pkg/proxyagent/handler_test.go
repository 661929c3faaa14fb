package proxyagent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

// TestConnListener sends requests on a carrier to a server that gets its connections
// from there, and sees that nothing is left at the end.
func TestConnListener(t *testing.T) {
	address := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 7443} // where nobody listens
	handler := newConnListener(address)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.RemoteAddr)
	})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(handler) }()

	carriers := &carrierDialer{handler: handler, metrics: newAgentMetrics(prometheus.NewRegistry()), decide: func(string, string) (policy.Target, error) {
		return policy.Target{Address: address.String(), Handler: true}, nil
	}}
	near, far := net.Pipe()
	dialed := make(chan *carrier.Carrier, 1)
	go func() {
		c, err := carrier.Dialed(t.Context(), far, carrier.Hello{}, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(carriers.serveOpen)})
		if err != nil {
			t.Error(err)
		}
		dialed <- c
	}()
	opener, _, err := carrier.Accepted(t.Context(), near, carrier.Config{})
	if err != nil {
		t.Fatal(err)
	}
	agent := <-dialed

	transport := &http.Transport{DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		return opener.Open(ctx, carrier.OpenRequest{Network: network, Address: address})
	}}
	for range 3 {
		resp, err := (&http.Client{Transport: transport}).Get("http://handler:7443/")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || string(body) != address.String() {
			t.Errorf("the handler sees %q, %v; want %s", body, err, address)
		}
	}
	open := func() float64 { return testutil.ToFloat64(carriers.metrics.connections) }
	if n := open(); n != 1 {
		t.Errorf("%v connections are counted, want 1", n)
	}
	transport.CloseIdleConnections()
	for open() != 0 {
		select {
		case <-t.Context().Done():
			t.Fatal("the connection is still counted")
		case <-time.After(time.Millisecond):
		}
	}
	server.Close()
	if err := <-served; err != http.ErrServerClosed {
		t.Errorf("Serve: %v, want ErrServerClosed", err)
	}
	_, _ = opener.Close(), agent.Close()
}

// A cap that the agent could not enforce on raw connections closes them.
func TestOwnerClosesTheWayThatCannotBeLookedInto(t *testing.T) {
	destinations := policy.Policy{Cluster: "cluster1", KubeAPIServer: "10.0.0.1:6443", Handler: "127.0.0.1:7443"}
	handler := identity.HandlerHost("cluster1") + ":" + identity.HandlerPort
	for name, test := range map[string]struct {
		policy  ownerpolicy.Policy
		broken  error
		wantRaw bool
	}{
		"no caps":        {wantRaw: true},
		"only allows":    {policy: ownerpolicy.Policy{AllowedReservedNames: []string{"system:masters"}}, wantRaw: true},
		"read-only":      {policy: ownerpolicy.Policy{ReadOnly: true}},
		"no streams":     {policy: ownerpolicy.Policy{NoStreams: true}},
		"no Secrets":     {policy: ownerpolicy.Policy{NoSecrets: true}},
		"not understood": {broken: errors.New("broken")},
	} {
		decide := capped(destinations, func() (ownerpolicy.Policy, error) { return test.policy, test.broken })
		if _, err := decide("tcp", handler); err != nil {
			t.Errorf("%s: the handler: %v", name, err)
		}
		_, err := decide("tcp", "cluster1:443")
		var denied *policy.Denied
		if (err == nil) != test.wantRaw || err != nil && (!errors.As(err, &denied) || denied.Reason != "owner") {
			t.Errorf("%s: the kube-apiserver: %v, want it open: %v", name, err, test.wantRaw)
		}
		if _, err := decide("tcp", "example.org:443"); err == nil {
			t.Errorf("%s: dials anything", name)
		}
	}
}
