package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// reach waits until a dial through the tunnel reaches a cluster, or does not.
// It must reach that cluster's agent, which shows its certificate.
func (s *Suite) reach(t *testing.T, cluster string, want bool) {
	t.Helper()
	dialer := s.Dialer(t)
	client := s.MustHubSecret(t, "cluster-proxy-api-client").Data
	inner := clientTLS(t, pki.KeyPair{CertPEM: client["tls.crt"], KeyPEM: client["tls.key"]}, s.MustHubSecret(t, suite.AgentBundle).Data["ca.crt"], identity.HandlerHost(cluster))
	suite.Eventually(t, fmt.Sprintf("%s reachable: %v", cluster, want), func() error {
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

// testAgentID has the attacker's agent use the victim's agent ID. It gets nothing of what
// is the victim's.
func (s *Suite) testAgentID(t *testing.T) {
	pods, err := s.managed[s.victim()].CoreV1().Pods(identity.DefaultAgentNamespace).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(pods.Items) == 0 {
		t.Fatalf("%d agents of the victim, %v, want some", len(pods.Items), err)
	}
	id := string(pods.Items[0].UID)
	own := s.agentCertificate(t, s.attacker())
	n := s.watch(t, proxyServer, "cluster_proxy_server_agent_id_conflicts_total")
	config := clientTLS(t, own, s.HubCA, "127.0.0.1")
	config.NextProtos = []string{"cluster-proxy/1"}
	conn, err := tls.Dial("tcp", s.agentPort(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	asked := make(chan struct{}, 1)
	_, err = carrier.Dialed(t.Context(), conn, carrier.Hello{Session: id},
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
	n.check(t, 1, "Agents of two clusters use the same ID", id, `cluster="`+s.attacker()+`"`, `other="`+s.victim()+`"`)
}

// testDials asks the attacker's agent, by way of the proxy servers, for ports that its
// policy does not have. TestDenied has all that it denies.
func (s *Suite) testDials(t *testing.T) {
	dialer := s.Dialer(t)
	for _, port := range []string{"22", "8093", "443"} {
		conn, err := dialer.DialContext(t.Context(), "tcp", net.JoinHostPort(identity.HandlerHost(s.attacker()), port))
		if err == nil {
			_ = conn.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "denied by policy") {
			t.Errorf("the agent is asked for port %s of its handler's host: %v, want it denied by policy", port, err)
		}
	}
}
