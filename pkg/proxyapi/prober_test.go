package proxyapi

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestReadyWithoutProxyServer wants a proxy API whose proxy servers are gone to
// stay in its Service, and to tell its users what is wrong.
func TestReadyWithoutProxyServer(t *testing.T) {
	w := start(t, func(o *Options) { o.ProxyServer = "127.0.0.1:1" })
	w.api.User("hubs", "jane")
	w.api.Allow("jane * clusters/proxy *")
	client := w.client("h2")
	<-w.server.prober.probed // until then it is not ready
	if response, body := get(t, client, w.url+"/readyz", nil); response.StatusCode != http.StatusOK {
		t.Errorf("/readyz answers %d %s, want 200", response.StatusCode, body)
	}
	response, body := get(t, client, w.url+"/cluster1/version", http.Header{"Authorization": {"Bearer hubs"}})
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil || response.StatusCode != http.StatusServiceUnavailable || status.Message == "" {
		t.Errorf("a request is answered with %d %q, %v; want 503 and a Status", response.StatusCode, body, err)
	}
	if reachable := testutil.ToFloat64(w.server.metrics.Reachable); reachable != 0 {
		t.Errorf("the metric says %v, want 0", reachable)
	}
}
