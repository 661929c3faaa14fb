package e2e

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// TestGoClientWithTunnelDialer reaches clusters with client-go and our dialer. It
// disturbs nothing: it only reads.
func TestGoClientWithTunnelDialer(t *testing.T) {
	dialer := installed.Dialer(t)
	for _, cluster := range installed.Clusters {
		t.Run(cluster, func(t *testing.T) {
			cfg := dialer.RESTConfig(cluster)
			cfg.BearerToken = installed.AdminToken[cluster]
			cfg.TLSClientConfig.CAData = installed.ClusterCA(cluster)
			suite.WantPods(t, cfg)
		})
	}
	t.Run("no such cluster", func(t *testing.T) {
		_, err := dialer.DialContext(t.Context(), "tcp", "nowhere:443")
		if code := tunnel.CodeOf(err); code != tunnel.NoAgent {
			t.Errorf("dialing an unknown cluster: %v (code %v), want %v", err, code, tunnel.NoAgent)
		}
	})
}

// TestGoClientWithKonnectivity reaches clusters with client-go and konnectivity's client. It disturbs
// nothing: it only reads.
func TestGoClientWithKonnectivity(t *testing.T) {
	transport := grpc.WithTransportCredentials(credentials.NewTLS(installed.ClientTLS(t)))
	for _, cluster := range installed.Clusters {
		t.Run(cluster+"/single-use", func(t *testing.T) {
			suite.WantPods(t, installed.ThroughDialer(cluster, func(ctx context.Context, network, address string) (net.Conn, error) {
				single, err := konnectivity.CreateSingleUseGrpcTunnel(ctx, installed.ProxyServer, transport)
				if err != nil {
					return nil, err
				}
				return single.DialContext(ctx, network, address)
			}))
		})
		t.Run(cluster+"/reusable", func(t *testing.T) {
			reusable, err := konnectivity.CreateGRPCTunnel(t.Context(), installed.ProxyServer, transport)
			if err != nil {
				t.Fatal(err)
			}
			defer reusable.Close()
			suite.WantPods(t, installed.ThroughDialer(cluster, reusable.DialContext))
		})
	}
}
