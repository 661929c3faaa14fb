package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// status sends a GET through the proxy API and decodes the Status that comes
// back.
func status(t *testing.T, cfg *rest.Config, path string) (*http.Response, metav1.Status) {
	t.Helper()
	resp, s, err := tryStatus(t.Context(), cfg, path)
	if err != nil {
		t.Fatal(err)
	}
	return resp, s
}

func tryStatus(ctx context.Context, cfg *rest.Config, path string) (*http.Response, metav1.Status, error) {
	var s metav1.Status
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, s, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+path, nil)
	if err != nil {
		return nil, s, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, s, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, s, err
	}
	if err := json.Unmarshal(body, &s); err != nil || s.Kind != "Status" {
		return nil, s, fmt.Errorf("%s answered %d with %q, want a metav1.Status", path, resp.StatusCode, body)
	}
	return resp, s, nil
}

func TestUnknownClusterIs404(t *testing.T) {
	cfg := suite.throughProxyAPI("nowhere")
	if resp, _ := status(t, cfg, "/api/v1/pods"); resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("a token that nobody knows: %d, want 401", resp.StatusCode)
	}
	cfg.BearerToken = suite.hubToken
	resp, s := status(t, cfg, "/api/v1/pods")
	if resp.StatusCode != http.StatusNotFound || s.Code != http.StatusNotFound {
		t.Errorf("got %d (%d in the body), want 404", resp.StatusCode, s.Code)
	}
	if !strings.Contains(s.Message, "nowhere") {
		t.Errorf("message %q does not name the cluster", s.Message)
	}
}

func TestWrongTokenIs401(t *testing.T) {
	forEachDoor(t, func(t *testing.T, _ string, cfg *rest.Config) {
		cfg.BearerToken = "not-a-token"
		_, err := clientset(t, cfg).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("got %v, want unauthorized", err)
		}
	})
}

// TestNoTokenIs401 sends no credential through the proxy API, which would be an
// anonymous user on the cluster.
func TestNoTokenIs401(t *testing.T) {
	for _, cluster := range append([]string{"nowhere"}, suite.clusters...) {
		cfg := suite.throughProxyAPI(cluster)
		cfg.BearerToken = ""
		if resp, s := status(t, cfg, "/version"); resp.StatusCode != http.StatusUnauthorized || !strings.Contains(s.Message, "token of the hub") {
			t.Errorf("%s: %d %q, want 401 of the proxy API", cluster, resp.StatusCode, s.Message)
		}
	}
}

func TestForbiddenIs403(t *testing.T) {
	forEachTokenDoor(t, func(t *testing.T, cluster string, cfg *rest.Config) {
		cfg.BearerToken = suite.viewerToken[cluster]
		cs := clientset(t, cfg)
		if _, err := cs.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Errorf("the viewer may list pods, but: %v", err)
		}
		if _, err := cs.CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("listing secrets as the viewer: %v, want forbidden", err)
		}
	})
}

// A token of one cluster means nothing on another: if requests were ever sent
// to the wrong cluster, this is what would show it.
func TestTokenOfAnotherClusterIs401(t *testing.T) {
	if len(suite.clusters) < 2 {
		t.Skip("needs two managed clusters")
	}
	cfg := suite.throughProxyAPI(suite.clusters[0])
	cfg.BearerToken = suite.adminToken[suite.clusters[1]]
	_, err := clientset(t, cfg).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("got %v, want unauthorized", err)
	}
}

func TestPathsArriveByteForByte(t *testing.T) {
	forEachDoor(t, func(t *testing.T, _ string, cfg *rest.Config) {
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
