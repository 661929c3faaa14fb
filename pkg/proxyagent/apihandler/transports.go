package apihandler

import (
	"fmt"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
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

// RoundTrip lends the agent's credential to requests of users whom it
// impersonates, and to no others.
func (t *transports) RoundTrip(r *http.Request) (*http.Response, error) {
	shared, separate := t.shared, t.separate
	config, ok := impersonationOf(r.Context())
	if ok {
		shared, separate = transport.NewImpersonatingRoundTripper(config, t.ownShared), transport.NewImpersonatingRoundTripper(config, t.ownSeparate)
	}
	if r.Header.Get("Upgrade") != "" {
		return separate.RoundTrip(r)
	}
	return shared.RoundTrip(r)
}

// buffers lends the memory through which bodies are copied.
type buffers struct{ pool sync.Pool }

func (b *buffers) Get() []byte {
	if buf, ok := b.pool.Get().(*[]byte); ok {
		return *buf
	}
	return make([]byte, 32<<10)
}

func (b *buffers) Put(buf []byte) { b.pool.Put(&buf) }
