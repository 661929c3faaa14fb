package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/httpstream"
	"k8s.io/apimachinery/pkg/watch"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/transport/spdy"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// TestObjects makes, changes, lists and deletes objects in every way that clients
// have. It disturbs nothing: what it makes lies in a namespace of its own.
func TestObjects(t *testing.T) {
	installed.ForEachEndpoint(t, func(t *testing.T, cluster string, cfg *rest.Config) {
		cs := suite.Clientset(t, cfg)
		ns := suite.Scratch(t, cs)
		maps := cs.CoreV1().ConfigMaps(ns)
		created, err := maps.Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"e2e": "yes"}},
			Data:       map[string]string{"cluster": cluster},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := maps.Get(t.Context(), "one", metav1.GetOptions{})
		if err != nil || got.UID != created.UID || got.Data["cluster"] != cluster {
			t.Fatalf("got %v, %v; want the object just created", got, err)
		}
		if _, err := maps.Patch(t.Context(), "one", types.JSONPatchType, []byte(`[{"op":"add","path":"/data/json","value":"1"}]`), metav1.PatchOptions{}); err != nil {
			t.Fatal("JSON patch:", err)
		}
		if _, err := maps.Patch(t.Context(), "one", types.StrategicMergePatchType, []byte(`{"data":{"strategic":"1"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal("strategic merge patch:", err)
		}
		applied, err := maps.Apply(t.Context(), corev1ac.ConfigMap("one", ns).WithData(map[string]string{"applied": "1"}), metav1.ApplyOptions{FieldManager: "e2e"})
		if err != nil {
			t.Fatal("server-side apply:", err)
		}
		if len(applied.Data) != 4 {
			t.Errorf("after three patches the data is %v, want 4 keys", applied.Data)
		}
		if _, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "never"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			t.Fatal("dry run:", err)
		}
		if _, err := maps.Get(t.Context(), "never", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a dry run left an object behind: %v", err)
		}
		list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "e2e=yes"})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("list by label: %d items, %v; want 1", len(list.Items), err)
		}
		if err := maps.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "e2e=yes"}); err != nil {
			t.Fatal("delete collection:", err)
		}
		if _, err := maps.Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("after delete collection: %v, want not found", err)
		}
	})
}

// TestPagesAndTables lists in pages and asks for a Table. It disturbs nothing:
// what it makes lies in a namespace of its own.
func TestPagesAndTables(t *testing.T) {
	installed.ForEachEndpoint(t, func(t *testing.T, _ string, cfg *rest.Config) {
		cs := suite.Clientset(t, cfg)
		ns := suite.Scratch(t, cs)
		for i := range 5 {
			if _, err := cs.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("m", i)}}, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		var names []string
		options := metav1.ListOptions{Limit: 2}
		for {
			page, err := cs.CoreV1().ConfigMaps(ns).List(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range page.Items {
				if strings.HasPrefix(m.Name, "m") {
					names = append(names, m.Name)
				}
			}
			if options.Continue = page.Continue; options.Continue == "" {
				break
			}
		}
		if len(names) != 5 {
			t.Errorf("paged list gave %v, want 5 names", names)
		}
		raw, err := cs.CoreV1().RESTClient().Get().Namespace(ns).Resource("configmaps").
			SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var table metav1.Table
		if err := json.Unmarshal(raw, &table); err != nil || table.Kind != "Table" || len(table.Rows) < 5 {
			t.Errorf("asked for a Table, got kind %q with %d rows, %v", table.Kind, len(table.Rows), err)
		}
	})
}

// TestWatchIsFlushedAtOnce makes each change after the event of the one before
// it. It disturbs nothing: what it makes lies in a namespace of its own.
func TestWatchIsFlushedAtOnce(t *testing.T) {
	installed.ForEachEndpoint(t, func(t *testing.T, _ string, cfg *rest.Config) {
		cs := suite.Clientset(t, cfg)
		ns := suite.Scratch(t, cs)
		w, err := cs.CoreV1().ConfigMaps(ns).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=seen"})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Stop()
		// Each change is made only after the event of the one before it has
		// arrived, so an event that sits in a buffer stops the test.
		if _, err := cs.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		wantEvent(t, w, watch.Added)
		if _, err := cs.CoreV1().ConfigMaps(ns).Patch(t.Context(), "seen", types.MergePatchType, []byte(`{"data":{"a":"b"}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		wantEvent(t, w, watch.Modified)
		if err := cs.CoreV1().ConfigMaps(ns).Delete(t.Context(), "seen", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		wantEvent(t, w, watch.Deleted)
	})
}

func wantEvent(t *testing.T, w watch.Interface, want watch.EventType) {
	t.Helper()
	select {
	case event := <-w.ResultChan():
		if event.Type != want {
			t.Fatalf("event %q, want %q", event.Type, want)
		}
	case <-time.After(suite.Timeout):
		t.Fatalf("no %q event in %s", want, suite.Timeout)
	}
}

// TestLogsFollow reads a line of a log that goes on. It disturbs nothing: it only
// reads.
func TestLogsFollow(t *testing.T) {
	installed.ForEachEndpoint(t, func(t *testing.T, cluster string, cfg *rest.Config) {
		cs := suite.Clientset(t, cfg)
		ctx, cancel := context.WithTimeout(t.Context(), suite.Timeout)
		defer cancel()
		stream, err := cs.CoreV1().Pods("default").GetLogs(suite.WebPod(t, cs), &corev1.PodLogOptions{Follow: true}).Stream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer stream.Close()
		// The stream stays open, so a line can only be read if it was flushed.
		line, err := bufio.NewReader(stream).ReadString('\n')
		if err != nil || !strings.Contains(line, cluster) {
			t.Errorf("first line %q, %v; want one that names %q", line, err, cluster)
		}
	})
}

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

// TestAttach reads a line of a running container. It disturbs nothing.
func TestAttach(t *testing.T) {
	installed.ForEachEndpoint(t, func(t *testing.T, cluster string, cfg *rest.Config) {
		cs := suite.Clientset(t, cfg)
		url := cs.CoreV1().RESTClient().Post().Namespace("default").Resource("pods").Name(suite.WebPod(t, cs)).SubResource("attach").
			Param("stdout", "true").URL()
		executor, err := remotecommand.NewWebSocketExecutor(cfg, http.MethodGet, url.String())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), suite.Timeout)
		defer cancel()
		// Attach to a running container has no end of its own: the first line
		// is enough, and then the client goes away.
		seen := &firstLine{done: cancel}
		err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: seen})
		if !strings.Contains(seen.String(), cluster) {
			t.Errorf("attach gave %q, %v; want a line that names %q", seen.String(), err, cluster)
		}
	})
}

// firstLine collects what is written to it and calls done at the first newline.
type firstLine struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	done func()
}

func (f *firstLine) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.buf.Write(p)
	if bytes.ContainsRune(p, '\n') {
		f.done()
	}
	return len(p), nil
}

func (f *firstLine) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.buf.String()
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
		overWebSocket, err := portforward.NewSPDYOverWebsocketDialer(url, cfg)
		if err != nil {
			t.Fatal(err)
		}
		for name, dialer := range map[string]httpstream.Dialer{
			"spdy": spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, url), "websocket": overWebSocket,
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
	forwarder, err := portforward.New(dialer, []string{"0:8080"}, stop, ready, io.Discard, io.Discard)
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
