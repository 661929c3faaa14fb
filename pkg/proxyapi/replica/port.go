package replica

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/position"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
)

const (
	// peerReadTimeout is how long a peer may take to send a request, and maxGreeting how
	// many bytes of a greeting are read.
	peerReadTimeout = 10 * time.Second
	peerIdleTimeout = 3 * time.Minute
	MaxGreeting     = 16 << 10
	// maxImports is how many messages of peers are read at a time.
	maxImports = 4
	// connectionsPerPeer bounds the connections to one peer.
	connectionsPerPeer = 16
)

// PeerTransport sends requests to peers. The other end must be one: its certificate is
// looked at as theirs is here.
func PeerTransport(source *pki.Reloader) *http.Transport {
	return &http.Transport{
		MaxConnsPerHost: connectionsPerPeer, MaxIdleConnsPerHost: connectionsPerPeer, IdleConnTimeout: 2 * greetEvery,
		DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			// A dial may outlive the request that it was begun for.
			ctx, cancel := context.WithTimeout(ctx, greetTimeout)
			defer cancel()
			config := source.ClientConfig(identity.ProxyAPIPeerHost)
			config.VerifyConnection = func(state tls.ConnectionState) error { return source.CheckRole(&state, identity.RoleProxyAPI) }
			return (&tls.Dialer{Config: config}).DialContext(ctx, network, address)
		},
	}
}

// Serve serves peers until ctx is done.
func (p *Peers) Serve(ctx context.Context, source *pki.Reloader, listener net.Listener) error {
	server := &http.Server{
		Handler: p.handler(source), ReadHeaderTimeout: peerReadTimeout, ReadTimeout: peerReadTimeout, WriteTimeout: peerReadTimeout, IdleTimeout: peerIdleTimeout,
		MaxHeaderBytes: MaxGreeting, ErrorLog: log.New(io.Discard, "", 0),
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
func (p *Peers) handler(source *pki.Reloader) http.Handler {
	routes := p.Routes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := source.CheckRole(r.TLS, identity.RoleProxyAPI); err != nil {
			p.Metrics.Rejected.WithLabelValues(metrics.RejectedPeer).Inc()
			klog.FromContext(r.Context()).Info("Refused what is no replica of the proxy API", "from", r.RemoteAddr, "message", err.Error())
			w.Header().Set("Connection", "close")
			http.Error(w, "this port is for the replicas of the proxy API", http.StatusForbidden)
			return
		}
		routes.ServeHTTP(w, r)
	})
}

// Routes are the paths of the port for peers.
func (p *Peers) Routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+GreetPath, p.answerGreeting)
	mux.HandleFunc("GET "+PositionsPath+"/{version}", p.forThis(p.answerVersion))
	p.sessionRoutes(mux)
	imports := make(chan struct{}, maxImports)
	mux.HandleFunc("POST "+PositionsPath, p.forThis(func(w http.ResponseWriter, r *http.Request) {
		select {
		case imports <- struct{}{}:
			defer func() { <-imports }()
			p.answerPositions(w, r)
		case <-r.Context().Done():
		}
	}))
	return mux
}

// answerGreeting learns where the one that greets is, and says who else there is.
func (p *Peers) answerGreeting(w http.ResponseWriter, r *http.Request) {
	var g greeting
	raw, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxGreeting))
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

func (p *Peers) greetedBy(g greeting, address string) greeting {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	answer := greeting{ID: p.ID, Leaving: p.leaving}
	switch {
	case g.ID == p.ID:
		return answer
	case g.Leaving:
		for at, one := range p.Known {
			if one.ID == g.ID {
				delete(p.Known, at)
			}
		}
	case isAddress(address) && p.Known[address] == nil && len(p.Known) < maxPeers:
		p.Known[address] = &peer{ID: g.ID, own: true}
	case p.Known[address] != nil && p.Known[address].ID != g.ID:
		*p.Known[address] = peer{ID: g.ID, own: true}
	case p.Known[address] != nil:
		p.Known[address].own = true // if it is lost, that is for the next greeting to say
	}
	for at, one := range p.Known {
		if one.ID != "" && one.Lost.IsZero() && at != address {
			answer.Addresses = append(answer.Addresses, at)
		}
	}
	return answer
}

// answerVersion answers what is known of a version.
func (p *Peers) answerVersion(w http.ResponseWriter, r *http.Request) {
	v, err := version.Parse(r.PathValue("version"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer := p.Positions.Answer(v, r.URL.Query().Get(ownerParameter))
	if answer == nil {
		http.NotFound(w, r)
		return
	}
	_, _ = w.Write(answer) // the peer may be gone
}

// answerPositions takes what a peer hands over.
func (p *Peers) answerPositions(w http.ResponseWriter, r *http.Request) {
	message, err := io.ReadAll(http.MaxBytesReader(w, r.Body, position.MaxMessage))
	if err == nil {
		err = p.Positions.Import(message)
	}
	if err != nil {
		http.Error(w, strings.TrimSpace(err.Error()), http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
