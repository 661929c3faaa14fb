package agentclient

import (
	"context"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// TestErrorsOfConnectionsToKubeAPIServers wants users to be told of the kube-apiserver, and of
// the policy that denies a connection to it, and not of the agent's handler.
func TestErrorsOfConnectionsToKubeAPIServers(t *testing.T) {
	for _, tc := range []struct {
		code tunnel.Code
		want int
		says string
	}{
		{tunnel.Unreachable, http.StatusBadGateway, "check the kube-apiserver"},
		{tunnel.Denied, http.StatusForbidden, "cluster-proxy-owner-policy"},
		{tunnel.NoAgent, http.StatusServiceUnavailable, "no agent"},
	} {
		client := New(Options{Admission: everyAgent{}, Metrics: newMetrics(), Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			host, _, _ := net.SplitHostPort(address)
			return nil, &tunnel.Error{Code: tc.code, Cluster: host, Address: address} // as a tunnel.Dialer does
		}})
		_, err := client.DialAPIServer(t.Context(), "cluster1")
		code, message := StatusOf(err, "cluster1", time.Time{})
		if code != tc.want || !strings.Contains(message, tc.says) || strings.Contains(message, "handler") {
			t.Errorf("%s: users are told %d %q, want %d and %q", tc.code, code, message, tc.want, tc.says)
		}
	}
}

// TestFullTunnelsSayWhy wants users to read what is full, in the words of who refuses, bounded:
// an agent may say anything.
func TestFullTunnelsSayWhy(t *testing.T) {
	for said, want := range map[string]string{
		"":                       `the tunnel to cluster "c" takes no more connections: try again`,
		"too many pending dials": `the tunnel to cluster "c" takes no more connections: too many pending dials; try again`,
		"proxy server pod p uses 82 % of its memory limit: try again, or raise it": `the tunnel to cluster "c" takes no more connections: proxy server pod p uses 82 % of its memory limit: try again, or raise it`,
		strings.Repeat("é", 4000): `the tunnel to cluster "c" takes no more connections: ` + strings.Repeat("é", maxSaid/2) + "; try again",
	} {
		code, message := StatusOf(&tunnel.Error{Code: tunnel.Overloaded, Message: said}, "c", time.Time{})
		if code != http.StatusTooManyRequests || message != want {
			t.Errorf("%.50q: users are told %d %.300q, want 429 %.300q", said, code, message, want)
		}
	}
}
