package hostile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"slices"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/carrier/pool"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// hostileHub is a proxy server in the hands of the attacker: it has a
// certificate that agents accept, and asks the one agent that comes for whatever it likes.
type hostileHub struct {
	agents   string // port
	carriers *pool.Pool
}

func (s *Suite) hostileHub(t *testing.T, serving pki.KeyPair) *hostileHub {
	t.Helper()
	certificate, err := tls.X509KeyPair(serving.CertPEM, serving.KeyPEM)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.secret(t, "cluster-proxy-agent-ca").Data["ca.crt"])
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: roots, NextProtos: []string{carrier.ALPN}})
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	more := make(chan int, 100)
	h := &hostileHub{agents: port, carriers: pool.New(pool.Config{Max: 100, MaxPending: 100, OnePeer: true, More: func(n int) { more <- n }})}
	t.Cleanup(func() {
		cancel()
		_ = listener.Close()
		_ = h.carriers.Close()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go h.take(ctx, conn, more)
		}
	}()
	return h
}

// take makes a carrier of a connection, or a control session.
func (h *hostileHub) take(ctx context.Context, conn net.Conn, more <-chan int) {
	hello, err := carrier.ReadHello(ctx, conn)
	if err != nil {
		return
	}
	config := carrier.Config{Role: carrier.Opener, Name: "hostile"}
	if !slices.Contains(hello.Features, carrier.FeatureControl) {
		if c, err := carrier.Answer(ctx, conn, config); err == nil {
			_ = h.carriers.Add(c)
		}
		return
	}
	session := carrier.AcceptSession(conn, hello, carrier.SessionConfig{Most: 1000, Carrier: &config})
	if session.Answer(ctx, carrier.Hello{Session: "hostile", Servers: 1}) != nil {
		return
	}
	over := make(chan struct{})
	session.Start(func(carrier.Control) {}, func(error) { close(over) })
	if session.Opens() {
		_ = h.carriers.Add(session.Carrier())
	}
	for {
		select {
		case n := <-more:
			_ = session.Send(agentapi.ControlMessage(agentapi.MoreCarriers, n))
		case <-over:
			return
		case <-ctx.Done():
			_ = conn.Close()
			return
		}
	}
}

// dial asks the agent for a connection, and returns the words of its refusal.
func (h *hostileHub) dial(t *testing.T, network, address string) (refusal string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	conn, err := h.carriers.Open(ctx, carrier.OpenRequest{Network: network, Address: address})
	if err == nil {
		return "", conn.Close()
	}
	var refused *carrier.Error
	if errors.As(err, &refused) && carrier.Answered(err) {
		return refused.Message, nil
	}
	return "", err
}
