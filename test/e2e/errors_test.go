package e2e

import (
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// TestWrongTokenIs401 sends a token that no cluster knows. It disturbs nothing:
// it only reads.
func TestWrongTokenIs401(t *testing.T) {
	installed.ForEachEndpoint(t, func(t *testing.T, _ string, cfg *rest.Config) {
		cfg.BearerToken = "not-a-token"
		_, err := suite.Clientset(t, cfg).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("got %v, want unauthorized", err)
		}
	})
}

// TestForbiddenIs403 asks for more than a viewer may. It disturbs nothing: it
// only reads.
func TestForbiddenIs403(t *testing.T) {
	installed.ForEachTokenEndpoint(t, func(t *testing.T, cluster string, cfg *rest.Config) {
		cfg.BearerToken = installed.ViewerToken[cluster]
		cs := suite.Clientset(t, cfg)
		if _, err := cs.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("the viewer may list pods, but: %v", err)
		}
		if _, err := cs.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("listing secrets as the viewer: %v, want forbidden", err)
		}
	})
}

// TestTokenOfAnotherClusterIs401 sends a token of one cluster to another one. A
// request that went to the wrong cluster would succeed. It disturbs nothing: it only
// reads.
func TestTokenOfAnotherClusterIs401(t *testing.T) {
	if len(installed.Clusters) < 2 {
		t.Skip("needs two managed clusters")
	}
	cfg := installed.ThroughProxyAPI(installed.Clusters[0])
	cfg.BearerToken = installed.AdminToken[installed.Clusters[1]]
	_, err := suite.Clientset(t, cfg).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("got %v, want unauthorized", err)
	}
}

// TestPathsArriveByteForByte sends paths that a careless proxy rewrites. It
// disturbs nothing: it only reads.
func TestPathsArriveByteForByte(t *testing.T) {
	installed.ForEachEndpoint(t, func(t *testing.T, _ string, cfg *rest.Config) {
		for path, want := range map[string]int{
			"/version": http.StatusOK,
			"/api/v1/namespaces/default/configmaps/no%2Fsuch":  http.StatusNotFound,
			"/api/v1/namespaces/default/configmaps/no%20such":  http.StatusNotFound,
			"/api/v1/namespaces?labelSelector=a%2Fb%3Dc&x=/y/": http.StatusOK,
			"/no/such/api": http.StatusNotFound,
		} {
			client, err := rest.HTTPClientFor(cfg)
			if err != nil {
				t.Fatal(err)
			}
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, cfg.Host+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != want {
				t.Errorf("%s: %d, want %d", path, resp.StatusCode, want)
			}
		}
	})
}
