package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/scrape"
)

// TestClientsThatGoAway opens watches and commands that do not end, and leaves
// without closing them. Nothing of them may stay, at the kube-apiserver or on the way.
// It disturbs nothing but counts of open streams.
func TestClientsThatGoAway(t *testing.T) {
	installed.NeedLab(t, "counts in processes of this machine")
	const each = 10
	if onNodes {
		t.Skip("counts in processes of this machine: make test")
	}
	cluster := installed.Clusters[0]
	cs := suite.Clientset(t, installed.Direct(cluster))
	ns := suite.Scratch(t, cs)
	pod := suite.WebPod(t, cs)
	// Nobody else watches events, not even the garbage collector.
	there := func() (float64, error) {
		raw, err := cs.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		watches, err1 := scrape.Sum(bytes.NewReader(raw), `apiserver_longrunning_requests{`, `resource="events"`, `verb="WATCH"`)
		commands, err2 := scrape.Sum(bytes.NewReader(raw), `apiserver_longrunning_requests{`, `subresource="exec"`)
		return watches + commands, errors.Join(err, err1, err2)
	}
	here := func(name string) (float64, error) {
		return installed.Lab.PodMetric(t.Context(), "hub", installed.Namespace, "component=cluster-proxy-addon-user", 8000, name)
	}
	// The hub's garbage collector watches what the proxy API has itself, of no cluster.
	streamsThere := fmt.Sprintf("cluster_proxy_api_streams{managed_cluster=%q", cluster)
	for _, endpoint := range installed.Endpoints(cluster) {
		t.Run(endpoint.Name, func(t *testing.T) {
			streams, err1 := here(streamsThere)
			conns, err2 := here("cluster_proxy_api_agent_connections")
			before, err3 := there()
			if err := errors.Join(err1, err2, err3); err != nil {
				t.Fatal(err)
			}
			cfg := rest.CopyConfig(endpoint.Cfg)
			opened := make(chan net.Conn, 10*each)
			cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
				if err == nil {
					opened <- conn
				}
				return conn, err
			}
			client, err := rest.HTTPClientFor(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for range each {
				resp, err := client.Get(cfg.Host + "/api/v1/namespaces/" + ns + "/events?watch=1")
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				runForever(t, cfg, pod)
			}
			if now, err := there(); err != nil || now != before+2*each {
				t.Fatalf("%v streams at the kube-apiserver, %v before: %v", now, before, err)
			}
			closed, gone := len(opened), time.Now()
			for range closed {
				_ = (<-opened).Close()
			}
			suite.Eventually(t, "everything to be freed", func() error {
				left, err1 := there()
				now, err2 := here(streamsThere)
				open, err3 := here("cluster_proxy_api_agent_connections")
				if left > before || now > streams || open > conns+2 { // those for requests may be new
					return fmt.Errorf("%v streams at the kube-apiserver, %v on the hub, %v connections to agents; before it was %v, %v and %v", left, now, open, before, streams, conns)
				}
				return errors.Join(err1, err2, err3)
			})
			t.Logf("%d connections were closed, and everything was freed after %s", closed, time.Since(gone).Round(time.Millisecond))
		})
	}
}

// runForever starts a command that ends with its stdin, and returns when it runs.
func runForever(t *testing.T, cfg *rest.Config, pod string) {
	t.Helper()
	conn, resp := upgrade(t, cfg, "/api/v1/namespaces/default/pods/"+pod+"/exec?stdin=1&stdout=1&command=sh&command=-c&command=echo+on%3B+cat", http.Header{
		"Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"dGhlIHNhbXBsZSBub25jZQ=="}, "Sec-Websocket-Protocol": {"v5.channel.k8s.io"}})
	if resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("answered %d, want 101", resp.StatusCode)
	}
	for frames := bufio.NewReader(conn); ; {
		line, err := frames.ReadString('\n')
		if err != nil {
			t.Fatalf("the command says %q, %v", line, err)
		}
		if strings.HasSuffix(line, "on\n") {
			return
		}
	}
}
