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
	"k8s.io/client-go/rest"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
)

// throughDialer is a configuration that reaches a managed kube-apiserver with
// TLS end to end, over conns that dial gives.
func throughDialer(cluster string, dial func(ctx context.Context, network, address string) (net.Conn, error)) *rest.Config {
	cfg := suite.direct(cluster)
	cfg.Host = "https://" + cluster
	cfg.TLSClientConfig.ServerName = "kubernetes.default.svc"
	cfg.Dial = dial
	return cfg
}

func wantPods(t *testing.T, cfg *rest.Config) {
	t.Helper()
	pods, err := clientset(t, cfg).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) == 0 {
		t.Error("no pods")
	}
}

func TestGoClientWithTunnelDialer(t *testing.T) {
	dialer := suite.dialer(t)
	for _, cluster := range suite.clusters {
		t.Run(cluster, func(t *testing.T) {
			cfg := dialer.RESTConfig(cluster)
			cfg.BearerToken = suite.adminToken[cluster]
			cfg.TLSClientConfig.CAData = suite.clusterCA(cluster)
			wantPods(t, cfg)
		})
	}
	t.Run("no such cluster", func(t *testing.T) {
		_, err := dialer.DialContext(t.Context(), "tcp", "nowhere:443")
		if code := tunnel.CodeOf(err); code != tunnel.NoAgent {
			t.Errorf("dialing an unknown cluster: %v (code %v), want %v", err, code, tunnel.NoAgent)
		}
	})
}

func TestGoClientWithKonnectivity(t *testing.T) {
	transport := grpc.WithTransportCredentials(credentials.NewTLS(suite.clientTLS(t)))
	for _, cluster := range suite.clusters {
		t.Run(cluster+"/single-use", func(t *testing.T) {
			wantPods(t, throughDialer(cluster, func(ctx context.Context, network, address string) (net.Conn, error) {
				single, err := konnectivity.CreateSingleUseGrpcTunnel(ctx, suite.proxyServer, transport)
				if err != nil {
					return nil, err
				}
				return single.DialContext(ctx, network, address)
			}))
		})
		t.Run(cluster+"/reusable", func(t *testing.T) {
			reusable, err := konnectivity.CreateGRPCTunnel(t.Context(), suite.proxyServer, transport)
			if err != nil {
				t.Fatal(err)
			}
			defer reusable.Close()
			wantPods(t, throughDialer(cluster, reusable.DialContext))
		})
	}
}

// TestClustersAreNeverMixed asks every cluster, from many goroutines at once,
// for an object that differs between clusters.
func TestClustersAreNeverMixed(t *testing.T) {
	want := map[string]string{}
	for _, cluster := range suite.clusters {
		ns, err := clientset(t, suite.direct(cluster)).CoreV1().Namespaces().Get(t.Context(), "kube-system", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want[cluster] = string(ns.UID)
	}
	var wg sync.WaitGroup
	errs := make(chan error, 1000)
	for _, cluster := range suite.clusters {
		cs := clientset(t, suite.throughProxyAPI(cluster))
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
