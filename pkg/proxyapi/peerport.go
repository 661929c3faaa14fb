package proxyapi

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const (
	// peerReadTimeout is how long a peer may take to send a request, and maxGreeting how
	// many bytes of a greeting are read.
	peerReadTimeout = 10 * time.Second
	maxGreeting     = 16 << 10
	// maxImports is how many messages of peers are read at a time.
	maxImports = 4
	// connectionsPerPeer bounds the connections to one peer.
	connectionsPerPeer = 16
)

// rejectedPeer is the reason in a metric for what is refused because it is no replica.
const rejectedPeer = "peer"

// peerTransport sends requests to peers. The other end must be one: its certificate is
// looked at as theirs is here.
func peerTransport(source *pki.Reloader) *http.Transport {
	return &http.Transport{
		MaxConnsPerHost: connectionsPerPeer, MaxIdleConnsPerHost: connectionsPerPeer, IdleConnTimeout: 2 * greetEvery,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			// A dial may outlive the request that it was begun for.
			ctx, cancel := context.WithTimeout(ctx, greetTimeout)
			defer cancel()
			config := source.ClientConfig(identity.ProxyAPIPeerHost)
			config.VerifyConnection = func(state tls.ConnectionState) error { return checkPeer(source, &state) }
			return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
		},
	}
}

// checkPeer returns an error unless the other end is a replica of the proxy API, with a
// certificate that a new handshake would accept.
func checkPeer(source *pki.Reloader, state *tls.ConnectionState) error {
	// Within a handshake that is not complete for crypto/tls, the chain is verified.
	done := *state
	done.HandshakeComplete = true
	role, err := pki.PeerRole(done)
	if err != nil {
		return err
	}
	if role != identity.RoleProxyAPI {
		return fmt.Errorf("role %q is not that of the proxy API", role)
	}
	certificate, err := pki.PeerCertificate(done)
	if err != nil {
		return err
	}
	return source.Recheck(certificate, time.Now())
}

// serve serves peers until ctx is done.
func (p *peers) serve(ctx context.Context, source *pki.Reloader, listener net.Listener) error {
	server := &http.Server{
		Handler: p.handler(source), ReadHeaderTimeout: peerReadTimeout, ReadTimeout: peerReadTimeout, WriteTimeout: peerReadTimeout, IdleTimeout: keepAliveTimeout,
		MaxHeaderBytes: maxGreeting, ErrorLog: discard,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving peers on %q: %w", listener.Addr(), err)
	case <-ctx.Done():
		_ = server.Close()
		<-failed
		return nil
	}
}

// handler answers peers, and nobody else.
func (p *peers) handler(source *pki.Reloader) http.Handler {
	routes := p.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := errors.New("it does not speak TLS")
		if r.TLS != nil {
			err = checkPeer(source, r.TLS)
		}
		if err != nil {
			p.metrics.rejected.WithLabelValues(rejectedPeer).Inc()
			klog.FromContext(r.Context()).Info("Refused what is no replica of the proxy API", "from", r.RemoteAddr, "err", err.Error())
			w.Header().Set("Connection", "close")
			http.Error(w, "this port is for the replicas of the proxy API", http.StatusForbidden)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

func (p *peers) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+greetPath, p.answerGreeting)
	mux.HandleFunc("GET "+positionsPath+"/{version}", p.forThis(p.answerVersion))
	p.sessionRoutes(mux)
	imports := make(chan struct{}, maxImports)
	mux.HandleFunc("POST "+positionsPath, p.forThis(func(w http.ResponseWriter, r *http.Request) {
		select {
		case imports <- struct{}{}:
			defer func() { <-imports }()
			p.answerPositions(w, r)
		case <-r.Context().Done():
		}
	}))
	return mux
}

// forThis refuses requests for another peer, whose address this process has got.
func (p *peers) forThis(handler http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get(peerHeader) != p.id {
			http.Error(w, "another replica is here", http.StatusMisdirectedRequest)
			return
		}
		handler(w, r)
	}
}

// answerGreeting learns where the one that greets is, and says who else there is.
func (p *peers) answerGreeting(w http.ResponseWriter, r *http.Request) {
	var g greeting
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxGreeting))
	if err == nil {
		err = json.Unmarshal(raw, &g)
	}
	host, _, split := net.SplitHostPort(r.RemoteAddr)
	if err != nil || split != nil || g.ID == "" || len(g.ID) > 100 {
		http.Error(w, "this is no greeting", http.StatusBadRequest)
		return
	}
	answer := p.greetedBy(g, net.JoinHostPort(host, fmt.Sprint(g.Port)))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the peer may be gone
}

func (p *peers) greetedBy(g greeting, address string) greeting {
	p.mu.Lock()
	defer p.mu.Unlock()
	answer := greeting{ID: p.id, Leaving: p.leaving}
	switch {
	case g.ID == p.id:
		return answer
	case g.Leaving:
		for at, one := range p.known {
			if one.id == g.ID {
				delete(p.known, at)
			}
		}
	case isAddress(address) && p.known[address] == nil && len(p.known) < maxPeers:
		p.known[address] = &peer{id: g.ID, own: true}
	case p.known[address] != nil && p.known[address].id != g.ID:
		*p.known[address] = peer{id: g.ID, own: true}
	case p.known[address] != nil:
		p.known[address].own = true // if it is lost, that is for the next greeting to say
	}
	for at, one := range p.known {
		if one.id != "" && one.lost.IsZero() && at != address {
			answer.Addresses = append(answer.Addresses, at)
		}
	}
	return answer
}

// answerVersion answers what is known of a version.
func (p *peers) answerVersion(w http.ResponseWriter, r *http.Request) {
	v, err := version.Parse(r.PathValue("version"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := p.positions.Answer(v, r.URL.Query().Get(ownerParameter))
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(answer) // the peer may be gone
}

// answerPositions takes what a peer hands over.
func (p *peers) answerPositions(w http.ResponseWriter, r *http.Request) {
	message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, watch.MaxMessage))
	if err == nil {
		err = p.positions.Import(message)
	}
	if err != nil {
		http.Error(w, strings.TrimSpace(err.Error()), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
