package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// TestExec runs a command by each protocol that clients speak. Its input stays open, as a terminal's
// does; TestExecStdinEnds ends one. See suite.ExecutorsWithoutInput for what an end does to a command
// that does not wait for it: over SPDY, 9 of 3,200 lost output without the addon, and 13 with it.
// It disturbs nothing.
func TestExec(t *testing.T) {
	installed.ForEachEndpoint(t, func(t *testing.T, cluster string, cfg *rest.Config) {
		cs := suite.Clientset(t, cfg)
		url := cs.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(suite.WebPod(t, cs)).SubResource("exec").
			Param("command", "sh").Param("command", "-c").Param("command", `echo "$CLUSTER"; echo oops >&2; head -c 5`).
			Param("stdin", "true").Param("stdout", "true").Param("stderr", "true").URL()
		spdyExec, err := remotecommand.NewSPDYExecutor(cfg, http.MethodPost, url)
		if err != nil {
			t.Fatal(err)
		}
		wsExec, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, url.String())
		if err != nil {
			t.Fatal(err)
		}
		oldExec, err := remotecommand.NewWebSocketExecutorForProtocols(cfg, http.MethodGet, url.String(), "v4.channel.k8s.io")
		if err != nil {
			t.Fatal(err)
		}
		for name, executor := range map[string]remotecommand.Executor{"spdy": spdyExec, "websocket v5": wsExec, "websocket v4": oldExec} {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), suite.Timeout)
				defer cancel()
				open, end := io.Pipe()
				defer end.Close()
				var stdout, stderr bytes.Buffer
				err := executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: io.MultiReader(strings.NewReader("12345"), open), Stdout: &stdout, Stderr: &stderr})
				if err != nil {
					t.Fatal(err)
				}
				if got, want := stdout.String(), cluster+"\n12345"; got != want {
					t.Errorf("stdout %q, want %q", got, want)
				}
				if got, want := stderr.String(), "oops\n"; got != want {
					t.Errorf("stderr %q, want %q", got, want)
				}
			})
		}
	})
}

// TestPortForward opens many connections at once in one port-forward. It disturbs
// nothing.
func TestPortForward(t *testing.T) {
	installed.ForEachEndpoint(t, func(t *testing.T, cluster string, cfg *rest.Config) {
		cs := suite.Clientset(t, cfg)
		url := cs.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(suite.WebPod(t, cs)).SubResource("portforward").URL()
		transport, upgrader, err := spdy.RoundTripperFor(cfg)
		if err != nil {
			t.Fatal(err)
		}
		overWebSocket, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for name, dialer := range map[string]httpstream.Dialer{
			"spdy": spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), "websocket": overWebSocket,
		} {
			t.Run(name, func(t *testing.T) { forward(t, cluster, dialer) })
		}
	})
}

// forwardedConnections is how many connections are open at once in one
// port-forward.
const forwardedConnections = 100

// forward asks the program behind a pod's port 8080 who it is, on many
// connections at once.
func forward(t *testing.T, cluster string, dialer httpstream.Dialer) {
	t.Helper()
	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.NewForStreaming(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	defer func() { close(stop); <-ended }()
	select {
	case <-ready:
	case err := <-ended:
		ended <- err
		t.Fatal("port-forward ended before it was ready:", err)
	}
	ports, err := forwarder.GetPorts()
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: suite.Timeout}
	var asking errgroup.Group
	for range forwardedConnections {
		asking.Go(func() error {
			resp, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", ports[0].Local))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err == nil && !strings.Contains(string(body), cluster) {
				err = fmt.Errorf("the pod answers %q, which does not name %s", body, cluster)
			}
			return err
		})
	}
	if err := asking.Wait(); err != nil {
		t.Errorf("of %d connections at once, one: %v", forwardedConnections, err)
	}
}

// TestKubectl uses the real kubectl through the proxy API. It disturbs nothing:
// it removes the ConfigMap that it applies.
func TestKubectl(t *testing.T) {
	for _, cluster := range installed.Clusters {
		t.Run(cluster, func(t *testing.T) {
			manifest := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kubectl-e2e","namespace":"default"},"data":{"cluster":%q}}`, cluster)
			t.Cleanup(func() {
				_, _ = installed.Kubectl(context.Background(), cluster, "", "delete", "configmap", "kubectl-e2e", "--ignore-not-found")
			})
			run := func(stdin string, args ...string) string {
				t.Helper()
				out, err := installed.Kubectl(t.Context(), cluster, stdin, args...)
				if err != nil {
					t.Fatalf("kubectl %q: %v\n%s", args, err, out)
				}
				return out
			}
			if out := run("", "get", "pods", "-o", "wide"); !strings.Contains(out, "web-") {
				t.Errorf("get pods: %s, want the pods of web", out)
			}
			run(manifest, "apply", "--dry-run=server", "-f", "-")
			if out, err := installed.Kubectl(t.Context(), cluster, manifest, "diff", "-f", "-"); err == nil || !strings.Contains(out, "+  cluster: "+cluster) {
				t.Errorf("diff before apply: %v\n%s; \nwant exit code 1 and the new line", err, out)
			}
			run(manifest, "apply", "--server-side", "-f", "-")
			run(manifest, "diff", "-f", "-")
			if out := run("", "get", "configmap", "kubectl-e2e", "-o", "jsonpath={.data.cluster}"); out != cluster {
				t.Errorf("data came back as %q, want %q", out, cluster)
			}
			if out := run("", "exec", "deploy/web", "--", "sh", "-c", "echo $CLUSTER"); strings.TrimSpace(out) != cluster {
				t.Errorf("exec gave %q, want %q", out, cluster)
			}
			if out := run("", "logs", "deploy/web", "--tail=1"); !strings.Contains(out, cluster) {
				t.Errorf("logs gave %q, want a line that names %q", out, cluster)
			}
		})
	}
}
