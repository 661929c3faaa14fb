package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// testServingCertificate has a proxy server in the attacker's hands lead every
// dial of the proxy API to somebody with the certificate of the attacker's
// agent. A request for the victim must not get that far.
func (s *Suite) testServingCertificate(t *testing.T) {
	impostor := s.impostor(t)
	hub := s.misrouter(t, impostor.address)
	client := write(t, s.pairOf(t, "cluster-proxy-api-client"), s.hubCA)
	agents := write(t, pki.KeyPair{}, s.secret(t, "cluster-proxy-agent-ca").Data["ca.crt"])
	serving := write(t, issue(t, s.ca(t, hubSigner), serverLeaf(), 0), nil)
	port, health := local(t), local(t)
	api := s.start(t, "proxy-api", "127.0.0.1:"+health, "proxy-api", "--proxy-server="+hub,
		"--proxy-ca-cert="+client.CA, "--proxy-cert="+client.Cert, "--proxy-key="+client.Key, "--agent-ca-cert="+agents.CA,
		"--server-cert="+serving.Cert, "--server-key="+serving.Key, "--server-port="+port, "--health-port="+health,
		"--kubeconfig="+s.Lab.Hub.KubeconfigPath, "--min-drain-duration=0s")
	token, err := s.managed[s.victim()].CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	users := &http.Client{Transport: &http.Transport{TLSClientConfig: clientTLS(t, issue(t, s.ca(t, hubSigner), serverLeaf(), 0), s.hubCA, "127.0.0.1")}}
	ask := func(cluster string) (int, error) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://127.0.0.1:"+port+"/"+cluster+"/version", nil)
		if err != nil {
			return 0, err
		}
		r.Header.Set("Authorization", "Bearer "+token.Status.Token)
		response, err := users.Do(r)
		if err != nil {
			return 0, err
		}
		defer response.Body.Close()
		_, err = io.Copy(io.Discard, response.Body)
		return response.StatusCode, err
	}
	// The way is open: with the right name the impostor is asked.
	api.Await(t, "the impostor to answer for its own cluster", func() error {
		if code, err := ask(s.attacker()); err != nil || code != http.StatusTeapot {
			return fmt.Errorf("answered %d, %w", code, err)
		}
		return nil
	})
	for len(impostor.asked) > 0 {
		<-impostor.asked
	}
	n := api.watch(t, `cluster_proxy_api_agent_tls_failures_total{reason="certificate"}`)
	if code, err := ask(s.victim()); err != nil || code < 400 || code == http.StatusTeapot {
		t.Errorf("a request for the victim: %d, %v; want an error", code, err)
	}
	n.check(t, 1, "TLS with an agent failed", `cluster="`+s.victim()+`"`, "certificate")
	if len(impostor.asked) > 0 {
		t.Error("the impostor got the victim's request")
	}
}

// impostor is a server with the attacker's certificate; asked gets an entry for
// each request.
type impostor struct {
	address string
	asked   chan struct{}
}

func (s *Suite) impostor(t *testing.T) *impostor {
	t.Helper()
	source := pkitest.Load(t, write(t, s.agentCertificate(t, s.attacker()), s.hubCA))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	i := &impostor{address: listener.Addr().String(), asked: make(chan struct{}, 1000)}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, TLSConfig: source.ServerConfig(tls.RequireAndVerifyClientCert),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			i.asked <- struct{}{}
			w.WriteHeader(http.StatusTeapot)
		})}
	server.TLSConfig.NextProtos = []string{"h2", "http/1.1"}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	return i
}

// misrouter is a proxy server that leads every dial to one address.
func (s *Suite) misrouter(t *testing.T, target string) string {
	t.Helper()
	listener := listenTLS(t, write(t, issue(t, s.ca(t, hubSigner), serverLeaf(), 0), s.hubCA), tls.RequireAndVerifyClientCert, "cluster-proxy/1")
	serve := func(ctx context.Context, request *carrier.Pending) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", target)
		if err != nil {
			return
		}
		accepted, err := request.Accept(carrier.Endpoints{Local: conn.LocalAddr().String(), Remote: conn.RemoteAddr().String()})
		if err != nil {
			_ = conn.Close()
			return
		}
		_ = carrier.Relay(accepted, conn)
	}
	go acceptAll(listener, func(conn net.Conn) {
		_, _, _ = carrier.Accepted(context.Background(), conn, carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(serve)})
	})
	return listener.Addr().String()
}

// listenTLS listens on a port of this machine until the test ends.
func listenTLS(t *testing.T, files pki.Files, clients tls.ClientAuthType, protocol string) net.Listener {
	t.Helper()
	config := pkitest.Load(t, files).ServerConfig(clients)
	config.NextProtos = []string{protocol}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// acceptAll serves each connection by itself, until the listener is closed.
func acceptAll(listener net.Listener, serve func(net.Conn)) {
	for {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		go serve(conn)
	}
}
