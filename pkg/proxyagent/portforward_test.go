package proxyagent

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
)

// silentHub has one proxy server, and never answers a port-forward to it.
type silentHub struct{ asked, waiting atomic.Int32 }

func (h *silentHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost {
		h.asked.Add(1)
		h.waiting.Add(1)
		<-r.Context().Done()
		h.waiting.Add(-1)
		return
	}
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "server"}}
	pod.Spec.Containers = []corev1.Container{{Ports: []corev1.ContainerPort{{Name: agentPortName, ContainerPort: 8091}}}}
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{pod}})
}

// outOfFiles is a listener that has no file descriptor for its first connection.
type outOfFiles struct {
	net.Listener
	was atomic.Bool
}

func (l *outOfFiles) Accept() (net.Conn, error) {
	if !l.was.Swap(true) {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

// TestPortForwardGoesOn has a moment without file descriptors, and then a hub that takes upgrades
// and does not answer. The listener goes on, and nothing stays of the attempts.
func TestPortForwardGoesOn(t *testing.T) {
	hub := &silentHub{}
	api := httptest.NewServer(hub)
	defer api.Close()
	defer api.CloseClientConnections()
	config := &rest.Config{Host: api.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	forwarder := &portForwarder{hub: config, pods: client, namespace: "hub", timeout: time.Second}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- forwarder.run(ctx, &outOfFiles{Listener: inner}) }()
	const attempts = 3
	for range attempts {
		conn, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(conn); err != nil { // it is closed
			t.Errorf("a connection that cannot be forwarded: %v, want that it ends", err)
		}
		_ = conn.Close()
	}
	// On a busy machine an attempt may end before the hub has seen it.
	eventually(t, "the hub has no attempts any more", func() bool { return hub.asked.Load() > 0 && hub.waiting.Load() == 0 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNoProxyServerIsReady wants the log to say how many pods there are, and how to look at them.
func TestNoProxyServerIsReady(t *testing.T) {
	starting := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "hub", Labels: map[string]string{"proxy.open-cluster-management.io/component-name": "proxy-server"}}}
	f := &portForwarder{pods: fake.NewClientset(starting), namespace: "hub"}
	const want = `no proxy server is ready: 0 of 1 pods with proxy.open-cluster-management.io/component-name=proxy-server in namespace "hub" of the hub`
	if _, _, err := f.choose(t.Context()); err == nil || err.Error() != want {
		t.Errorf("got %v, want %q", err, want)
	}
}
