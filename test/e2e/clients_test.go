package e2e

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// TestClustersAreNeverMixed asks every cluster, from many goroutines at once, for
// an object that differs between clusters. It disturbs nothing: it only reads.
func TestClustersAreNeverMixed(t *testing.T) {
	want := map[string]string{}
	for _, cluster := range installed.Clusters {
		ns, err := suite.Clientset(t, installed.Direct(cluster)).CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want[cluster] = string(ns.UID)
	}
	var wg sync.WaitGroup
	errs := make(chan error, 1000)
	for _, cluster := range installed.Clusters {
		cs := suite.Clientset(t, installed.ThroughProxyAPI(cluster))
		for range 8 {
			wg.Go(func() {
				for range 25 {
					ns, err := cs.CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
					switch {
					case err != nil:
						errs <- err
					case string(ns.UID) != want[cluster]:
						errs <- fmt.Errorf("asked %s, answered by somebody else: UID %s, want %s", cluster, ns.UID, want[cluster])
					}
				}
			})
		}
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}
