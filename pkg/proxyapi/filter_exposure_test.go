package proxyapi

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"open-cluster-management.io/cluster-proxy/pkg/connect"
)

// TestStreamsOfUnexposedServicesEnd takes Services off the list while connections to
// them are open, of users of the hub and of those whom the cluster alone knows. They
// end, and those to Services that stay go on.
func TestStreamsOfUnexposedServicesEnd(t *testing.T) {
	const list = `
- {namespace: ns, service: kept}
- {namespace: ns, service: kept-tcp, port: 5432, protocol: tcp}
`
	w := start(t)
	w.waitForCAs()
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect {
			endless(rw, r)
			return
		}
		conn, err := connect.Accept(rw, r)
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.Copy(io.Discard, conn)
	}), "cluster1")
	w.api.User("jane", "jane")
	w.api.Allow("jane * clusters/proxy cluster1", "jane create clusters/stream cluster1")
	w.api.SetExposed(map[string]string{"services": list + `
- {namespace: ns, service: gone}
- {namespace: ns, service: gone-tcp, port: 5432, protocol: tcp}
`})
	client := w.client()
	eventually(t, func() bool { // the list was read
		resp, err := client.Do(newRequest(t, w.url+"/cluster1"+ofServices+"kept/proxy-service/"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	config := client.Transport.(*http.Transport).TLSClientConfig
	open := map[string]map[string]*openStream{"gone": {}, "kept": {}}
	for service, streams := range open {
		path := "/cluster1" + ofServices + service + "/proxy-service/"
		for _, token := range []string{"jane", "of-the-cluster"} {
			header := "Host: x\r\nAuthorization: Bearer " + token + "\r\n"
			streams[token+" download"] = w.openStream(config, "GET "+path+" HTTP/1.1\r\n", header)
			streams[token+" upgrade"] = w.openStream(config, "GET "+path+" HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n", header)
		}
		target := service + "-tcp.ns.svc.cluster1:5432"
		streams["connection"] = w.openStream(config, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n", "Proxy-Authorization: Bearer jane\r\n")
	}

	w.api.SetExposed(map[string]string{"services": list})
	for name, s := range open["gone"] {
		select {
		case <-s.ended:
		case <-time.After(30 * time.Second):
			t.Errorf("%s goes on", name)
		}
	}
	for name, s := range open["kept"] {
		if !s.open() {
			t.Errorf("%s ended, want it open", name)
		}
	}
	if got, want := testutil.ToFloat64(w.server.metrics.Withdrawn.WithLabelValues("not-exposed")), float64(len(open["gone"])); got != want {
		t.Errorf("%v requests ended as not-exposed, want %v", got, want)
	}
}

func newRequest(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer jane")
	return r
}

// TestStreamsOfAnonymousUsersEnd has a Service be exposed no longer to those who send no
// credential, while they and a user have connections to it.
func TestStreamsOfAnonymousUsersEnd(t *testing.T) {
	const list, forAll = `- {namespace: ns, service: web}`, `- {namespace: ns, service: web, anonymous: true}`
	w := start(t)
	w.waitForCAs()
	w.agent("cluster1", http.HandlerFunc(endless), "cluster1")
	w.api.User("jane", "jane")
	w.api.Allow("jane * clusters/proxy cluster1", "jane create clusters/stream cluster1")
	w.api.SetExposed(map[string]string{"services": forAll})
	client := w.client()
	eventually(t, func() bool { // the list was read
		resp, err := client.Do(newRequest(t, w.url+"/cluster1"+ofServices+"web/proxy-service/"))
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	config := client.Transport.(*http.Transport).TLSClientConfig
	const text = "GET /cluster1" + ofServices + "web/proxy-service/ HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
	anonymous, jane := w.openStream(config, text, ""), w.openStream(config, text, "Authorization: Bearer jane\r\n")

	w.api.SetExposed(map[string]string{"services": list})
	select {
	case <-anonymous.ended:
	case <-time.After(30 * time.Second):
		t.Error("a connection of somebody without a credential goes on")
	}
	if !jane.open() {
		t.Error("a user's connection ended, want it open")
	}
}
