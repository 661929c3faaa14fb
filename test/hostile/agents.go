package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/apiserver-network-proxy/konnectivity-client/proto/client"
	"sigs.k8s.io/apiserver-network-proxy/proto/agent"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// connectAgent opens an agent's stream and waits for the proxy server's answer.
func (s *Suite) connectAgent(t *testing.T, pair pki.KeyPair, id, identifiers string) (agent.AgentService_ConnectClient, error) {
	t.Helper()
	conn, err := grpc.NewClient(s.agentPort(), grpc.WithTransportCredentials(credentials.NewTLS(clientTLS(t, pair, s.hubCA, "127.0.0.1"))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	t.Cleanup(cancel)
	ctx = metadata.AppendToOutgoingContext(ctx, header.AgentID, id, header.AgentIdentifiers, identifiers)
	stream, err := agent.NewAgentServiceClient(conn).Connect(ctx)
	if err != nil {
		return nil, err
	}
	if received, err := stream.Header(); err != nil || len(received.Get(header.ServerID)) == 0 {
		_, err = stream.Recv()
		return nil, err
	}
	return stream, nil
}

// testIdentifiers has the attacker's agent claim the victim's names, while the
// victim is away and while it is there.
func (s *Suite) testIdentifiers(t *testing.T) {
	own := s.agentCertificate(t, s.attacker())
	attack := func(t *testing.T) {
		forged := []string{
			"host=" + s.victim(),
			"host=" + s.attacker() + "&host=" + s.victim(),
			"host=" + s.victim() + "." + identity.DefaultAgentNamespace,
			"host=" + identity.HandlerHost(s.victim()),
			"host=" + s.attacker() + "&default-route=true",
			"ipv4=127.0.0.1",
			"cidr=0.0.0.0/0",
		}
		n := s.watch(t, proxyServer, `cluster_proxy_server_agents_rejected_total{reason="identifiers"}`)
		for _, identifier := range forged {
			if _, err := s.connectAgent(t, own, "hostile", identifier); status.Code(err) != codes.PermissionDenied {
				t.Errorf("connecting an agent with identifier %q: error %v, want permission denied", identifier, err)
			}
		}
		n.check(t, float64(len(forged)), "Agent rejected", `cluster="`+s.attacker()+`"`, s.victim())
	}
	if s.CanPause {
		if err := s.Lab.PausePods(s.victim()); err != nil {
			t.Fatal(err)
		}
		resume := func() { _ = s.Lab.ResumePods(s.victim()) }
		defer resume()
		s.reach(t, s.victim(), false)
		t.Run("while the victim is away", attack)
		s.reach(t, s.victim(), false)
		resume()
	}
	s.reach(t, s.victim(), true)
	t.Run("while the victim is connected", attack)
	s.reach(t, s.victim(), true)
}

// reach waits until a dial through the tunnel reaches a cluster, or does not.
// What it reaches must be that cluster's agent: it shows its certificate.
func (s *Suite) reach(t *testing.T, cluster string, want bool) {
	t.Helper()
	dialer := s.dialer(t, "proxy-client")
	inner := clientTLS(t, s.pairOf(t, "cluster-proxy-api-client"), s.secret(t, "cluster-proxy-agent-ca").Data["ca.crt"], identity.HandlerHost(cluster))
	eventually(t, fmt.Sprintf("%s reachable: %v", cluster, want), func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(identity.HandlerHost(cluster), identity.HandlerPort))
		if err == nil {
			defer conn.Close()
			err = tls.Client(conn, inner.Clone()).HandshakeContext(ctx)
		}
		if want || err != nil {
			if !want {
				return nil
			}
			return err
		}
		return fmt.Errorf("a dial of %s still succeeds", cluster)
	})
}

func (s *Suite) dialer(t *testing.T, secret string) *tunnel.Dialer {
	t.Helper()
	files := write(t, s.pairOf(t, secret), s.hubCA)
	dialer, err := tunnel.FromFiles(s.ProxyServer, files.CA, files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialer.Close() })
	return dialer
}

// testAgentID has the attacker's agent use the victim's agent ID, on a stream
// and on carriers. It gets nothing of what is the victim's.
func (s *Suite) testAgentID(t *testing.T) {
	pods, err := s.managed[s.victim()].CoreV1().Pods(identity.DefaultAgentNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d agents of the victim, %v, want some", len(pods.Items), err)
	}
	id := string(pods.Items[0].UID)
	own := s.agentCertificate(t, s.attacker())
	const conflicts, same = "cluster_proxy_server_agent_id_conflicts_total", "Agents of two clusters use the same ID"
	t.Run("carrier", func(t *testing.T) {
		n := s.watch(t, proxyServer, conflicts)
		config := clientTLS(t, own, s.hubCA, "127.0.0.1")
		config.NextProtos = []string{"cluster-proxy/1"}
		conn, err := tls.Dial("tcp", s.agentPort(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		asked := make(chan struct{}, 1)
		_, err = carrier.Dialed(t.Context(), conn, carrier.Hello{Version: carrier.Version, Session: id, Features: []string{carrier.FeatureName}},
			carrier.Config{Role: carrier.Acceptor, Handler: carrier.HandlerFunc(func(context.Context, *carrier.Pending) { asked <- struct{}{} })})
		if err == nil {
			// The answer to HELLO may come before the end.
			for range 20 {
				s.reach(t, s.victim(), true)
			}
		}
		select {
		case <-asked:
			t.Error("the attacker was asked to dial for the victim")
		default:
		}
		n.check(t, 1, same, id, `cluster="`+s.attacker()+`"`, `other="`+s.victim()+`"`)
	})
	t.Run("stream", func(t *testing.T) {
		n := s.watch(t, proxyServer, conflicts)
		stream, err := s.connectAgent(t, own, id, identity.Identifiers([]string{s.attacker() + "." + identity.DefaultAgentNamespace}))
		if err != nil {
			t.Fatalf("an agent of %s under its own name is refused: %v", s.attacker(), err)
		}
		got := make(chan string, 100)
		go func() {
			for {
				packet, err := stream.Recv()
				if err != nil {
					close(got)
					return
				}
				if packet.Type == client.PacketType_DIAL_REQ {
					got <- packet.GetDialRequest().Address
				}
			}
		}()
		for range 20 {
			s.reach(t, s.victim(), true)
		}
		_ = stream.CloseSend()
		select {
		case address, ok := <-got:
			if ok && !strings.HasPrefix(address, s.attacker()+".") {
				t.Errorf("the attacker was asked to dial %q", address)
			}
		default:
		}
		n.check(t, 1, same, id, `cluster="`+s.attacker()+`"`, `other="`+s.victim()+`"`)
	})
}

// testWrongPort shows each port a certificate that is good on the other one.
func (s *Suite) testWrongPort(t *testing.T) {
	agentPair, clientPair := s.agentCertificate(t, s.attacker()), s.pairOf(t, "proxy-client")
	for _, test := range []struct {
		name, address string
		pair          pki.KeyPair
		protocols     []string
	}{
		{"agent's certificate on the client port", s.ProxyServer, agentPair, []string{"h2"}},
		{"agent's certificate on the client port, with carriers", s.ProxyServer, agentPair, []string{"cluster-proxy/1"}},
		{"client's certificate on the agent port", s.agentPort(), clientPair, []string{"h2"}},
		{"client's certificate on the agent port, with carriers", s.agentPort(), clientPair, []string{"cluster-proxy/1"}},
		{"proxy API's certificate on the agent port", s.agentPort(), s.pairOf(t, "cluster-proxy-api-client"), []string{"h2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := s.watch(t, proxyServer, `cluster_proxy_server_tls_failures_total{reason="unknown-ca"}`)
			config := clientTLS(t, test.pair, s.hubCA, "127.0.0.1")
			config.NextProtos = test.protocols
			// An honest client would see that the server does not want this one.
			config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &config.Certificates[0], nil }
			if err := talk(t, test.address, config); err == nil || !strings.Contains(err.Error(), "tls") {
				t.Errorf("the port talks to this certificate: %v", err)
			}
			n.check(t, 1, "TLS handshake failed", "unknown-ca", "peer=")
		})
	}
}

// talk waits for the first byte of a server, which in TLS 1.3 is when a client
// learns that it was refused.
func talk(t *testing.T, address string, config *tls.Config) error {
	t.Helper()
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"); err != nil {
		return err
	}
	_, err = conn.Read(make([]byte, 1))
	return err
}
