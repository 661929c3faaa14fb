package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// agentsSpec is what the process of the agents is told.
type agentsSpec struct {
	Certs certs
	Shape shape
}

// agents are a proxy server and the agents of all clusters, which answer streams, reviews, and lists of pods.
type agents struct {
	ca  *pki.CA
	all []*agent
	// byHost has them by the names in their certificates.
	byHost map[string]*agent
	// opened are connections to agents.
	opened chan net.Conn

	issued sync.Map // *tls.Certificate by host name

	counters
	// stopSteady ends the changes of /steady.
	stopSteady atomic.Pointer[context.CancelFunc]
}

// asked counts what was asked of the agents since the last time.
type asked struct {
	// Resent are rows that were sent because a cluster's digests differ, or that the index had none.
	Resent int64
	// Reviews are questions about rights, and Lists are lists of pods.
	Reviews, Lists int64
}

// serveAgents serves a proxy server's port for clients, and a port for orders. It returns their addresses.
func serveAgents(ctx context.Context, spec agentsSpec) (server, orders string, err error) {
	a := &agents{byHost: map[string]*agent{}, opened: make(chan net.Conn)}
	if a.ca, err = spec.Certs.ca(agentsCA); err != nil {
		return "", "", err
	}
	all, _ := spec.Shape.members()
	for _, m := range all {
		one := &agent{counters: &a.counters, member: m}
		a.byHost[identity.HandlerHost(m.name)] = one
		a.all = append(a.all, one)
	}
	trusted, err := spec.Certs.ca(hubCA)
	if err != nil {
		return "", "", err
	}
	if err := a.serveCallers(ctx, trusted); err != nil {
		return "", "", err
	}
	outer, err := spec.Certs.load(ofProxyServer, hubCA)
	if err != nil {
		return "", "", err
	}
	config := outer.ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{carrier.ALPN}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		return "", "", err
	}
	go a.tunnel(ctx, listener)
	control, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	go func() { _ = http.Serve(control, a.orders(ctx)) }()
	return listener.Addr().String(), control.Addr().String(), nil
}

// certificate is that of the agent whom a caller wants to reach.
func (a *agents) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if made, ok := a.issued.Load(hello.ServerName); ok {
		return made.(*tls.Certificate), nil
	}
	one, ok := a.byHost[hello.ServerName]
	if !ok {
		return nil, fmt.Errorf("no agent has the name %q", hello.ServerName)
	}
	pair, err := a.ca.Issue(pki.Leaf{CommonName: identity.AgentCommonName(one.name), Organizations: identity.AgentOrganizations(one.name),
		DNSNames: []string{hello.ServerName}, Server: true, Client: true, Validity: validity}, time.Now())
	if err != nil {
		return nil, err
	}
	made, err := tls.X509KeyPair(pair.CertPEM, pair.KeyPEM)
	if err != nil {
		return nil, err
	}
	a.issued.Store(hello.ServerName, &made)
	return &made, nil
}

// tunnel takes carriers, and hands what is opened on them to the agents.
func (a *agents) tunnel(ctx context.Context, listener net.Listener) {
	for {
		wire, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			limited, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			c, _, err := carrier.Accepted(limited, wire, carrier.Config{Role: carrier.Acceptor, Name: "agents", Handler: carrier.HandlerFunc(a.open)})
			if err == nil {
				<-c.Done()
			}
		}()
	}
}

// open answers a dial. The connection outlives it.
func (a *agents) open(ctx context.Context, p *carrier.Pending) {
	conn, err := p.Accept(carrier.Endpoints{Local: "tunnel:0", Remote: p.Address})
	if err != nil {
		return
	}
	select {
	case a.opened <- conn:
	case <-ctx.Done():
		_ = conn.Close()
	}
}

// Accept, Close and Addr make agents the listener of their own server.
func (a *agents) Accept() (net.Conn, error) { return <-a.opened, nil }
func (a *agents) Close() error              { return nil }
func (a *agents) Addr() net.Addr            { return &net.TCPAddr{} }

// serveCallers serves the agents' HTTP. The name of the certificate says which agent is meant.
func (a *agents) serveCallers(ctx context.Context, trusted *pki.CA) error {
	callers := x509.NewCertPool()
	callers.AppendCertsFromPEM(trusted.CertPEM())
	config := &tls.Config{GetCertificate: a.certificate, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: callers, MinVersion: tls.VersionTLS13, NextProtos: []string{"h2", "http/1.1"}}
	server := &http.Server{TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.byHost[r.TLS.ServerName].ServeHTTP(w, r)
	})}
	if err := httprelay.ConfigureServer(server, 100); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(a, "", "") }()
	return nil
}

// orders are what the benchmark has the agents do.
func (a *agents) orders(ctx context.Context) http.Handler {
	mux := http.NewServeMux()
	number := func(r *http.Request, name string) int {
		n, _ := strconv.Atoi(r.URL.Query().Get(name))
		return n
	}
	// /load gives the clusters their rows, for streams that begin from now on.
	mux.HandleFunc("/load", func(http.ResponseWriter, *http.Request) {
		work := make(chan *agent)
		var working sync.WaitGroup
		for range 2 {
			working.Go(func() {
				var out bytes.Buffer
				writer := feed.NewWriter(&out)
				for one := range work {
					one.load(writer, &out)
				}
			})
		}
		for _, one := range a.all {
			work <- one
		}
		close(work)
		working.Wait()
	})
	// /burst changes rows of many clusters, as fast as they are taken.
	mux.HandleFunc("/burst", func(w http.ResponseWriter, r *http.Request) {
		var group sync.WaitGroup
		each := number(r, "each")
		for _, one := range a.all[:min(len(a.all), number(r, "clusters"))] {
			group.Go(func() {
				for i := range each {
					one.change(i)
				}
			})
		}
		group.Wait()
	})
	// /steady changes so many rows a second until /stop.
	mux.HandleFunc("/steady", func(w http.ResponseWriter, r *http.Request) {
		running, stop := context.WithCancel(ctx)
		a.stopSteady.Store(&stop)
		go a.changeSteadily(running, number(r, "rate"))
	})
	mux.HandleFunc("/stop", func(http.ResponseWriter, *http.Request) { (*a.stopSteady.Load())() })
	// /change changes a row of one cluster, and says which and when.
	mux.HandleFunc("/change", func(w http.ResponseWriter, r *http.Request) {
		one := a.all[number(r, "cluster")%len(a.all)]
		began := time.Now()
		name, version := one.change(0)
		_ = json.NewEncoder(w).Encode(changed{Cluster: one.name, Name: name, Version: version, At: began})
	})
	mux.HandleFunc("/asked", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(asked{Resent: a.resent.Swap(0), Reviews: a.reviews.Swap(0), Lists: a.lists.Swap(0)})
	})
	return mux
}

// changed is a change of a row.
type changed struct {
	Cluster, Name string
	Version       int
	At            time.Time
}

// changeSteadily changes rows of one cluster after the other.
func (a *agents) changeSteadily(ctx context.Context, rate int) {
	tick := time.NewTicker(time.Second / time.Duration(rate))
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			a.all[i*7919%len(a.all)].change(1)
		}
	}
}
