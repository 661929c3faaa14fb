package apihandler

import (
	"fmt"
	"net/http"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"open-cluster-management.io/cluster-proxy/pkg/hop"
)

// transports are the ways to the kube-apiserver. Upgrades need HTTP/1.1 and a
// connection each; everything else shares a few HTTP/2 connections.
type transports struct {
	shared, separate       http.RoundTripper // with no credential but the request's own
	ownShared, ownSeparate http.RoundTripper // with the agent's
}

func newTransports(cfg *rest.Config) (*transports, error) {
	own := rest.CopyConfig(cfg)
	// Whether an answer is compressed is between client and kube-apiserver.
	own.DisableCompression = true
	own.Impersonate = rest.ImpersonationConfig{}
	anonymous := rest.AnonymousClientConfig(own)
	anonymous.DisableCompression = true
	var t transports
	for _, way := range []struct {
		cfg    *rest.Config
		h2, h1 *http.RoundTripper
	}{{anonymous, &t.shared, &t.separate}, {own, &t.ownShared, &t.ownSeparate}} {
		var err error
		if *way.h2, err = rest.TransportFor(way.cfg); err != nil {
			return nil, fmt.Errorf("preparing connections to the kube-apiserver: %w", err)
		}
		upgrades := rest.CopyConfig(way.cfg)
		upgrades.NextProtos = []string{"http/1.1"}
		if *way.h1, err = rest.TransportFor(upgrades); err != nil {
			return nil, fmt.Errorf("preparing upgraded connections to the kube-apiserver: %w", err)
		}
	}
	return &t, nil
}

// isRead reports whether a request is one of those for which the proxy API keeps
// HTTP/1.1 connections (package hop). They go on as they came, a connection for
// each: that is cheaper for the kube-apiserver as well.
func isRead(r *http.Request) bool { return r.ProtoMajor == 1 && hop.Fits(r) }

// RoundTrip lends the agent's credential to requests of users whom it
// impersonates, and to no others.
func (t *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	shared, separate := t.shared, t.separate
	config, ok := impersonationOf(r.Context())
	if ok {
		shared, separate = transport.NewImpersonatingRoundTripper(config, t.ownShared), transport.NewImpersonatingRoundTripper(config, t.ownSeparate)
	}
	if r.Header.Get("Upgrade") != "" || isRead(r) {
		return separate.RoundTrip(r)
	}
	return shared.RoundTrip(r)
}
