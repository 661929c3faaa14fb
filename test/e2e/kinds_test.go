package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/lab"
)

// fakePod makes a pod, and a Service for it, whose only port is a handler of this
// test: the kube-apiserver proxies to it as to any other.
func fakePod(t *testing.T, cs *kubernetes.Clientset, ns string, handler http.Handler) {
	t.Helper()
	if onNodes {
		t.Skip("the pod is a program beside the kube-apiserver's process: make test")
	}
	own := lab.OwnAddress()
	if !own.IsValid() {
		t.Fatal("this machine has no address but loopback, to which no kube-apiserver proxies")
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(own.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: patience}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
	port := int32(listener.Addr().(*net.TCPAddr).Port)
	pods := cs.CoreV1().Pods(ns)
	meta := metav1.ObjectMeta{Name: "fake"}
	pod, err := pods.Create(t.Context(), &corev1.Pod{ObjectMeta: meta, Spec: corev1.PodSpec{
		SchedulerName: "nobody", Containers: []corev1.Container{{Name: "fake", Image: "lab.invalid/fake:1", Ports: []corev1.ContainerPort{{ContainerPort: port}}}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod.Status.PodIP, pod.Status.PodIPs = own.String(), []corev1.PodIP{{IP: own.String()}}
	_, err1 := pods.UpdateStatus(t.Context(), pod, metav1.UpdateOptions{})
	_, err2 := cs.CoreV1().Services(ns).Create(t.Context(), &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}, metav1.CreateOptions{})
	// The kube-apiserver's proxy reads Endpoints, and no controller of the lab makes them of slices.
	_, err3 := cs.CoreV1().Endpoints(ns).Create(t.Context(), &corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{
		Addresses: []corev1.EndpointAddress{{IP: own.String(), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: meta.Name}}},
		Ports:     []corev1.EndpointPort{{Name: "http", Port: port}},
	}}}, metav1.CreateOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
}

// mirror answers with what it was asked.
func mirror(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Upgrade") != "":
		echoUpgraded(w, r)
		return
	case strings.HasSuffix(r.URL.Path, "/elsewhere"):
		w.Header().Set("Location", "/here?a=b")
		w.WriteHeader(http.StatusFound)
		return
	case strings.HasSuffix(r.URL.Path, "/broken"):
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	body, err := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s %s %q %q %d bytes, %v", r.Method, r.RequestURI, r.Header.Get("Content-Type"), r.Header["X-E2e"], len(body), err)
}

func echoUpgraded(w http.ResponseWriter, r *http.Request) {
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", r.Header.Get("Upgrade"))
	_, _ = io.Copy(conn, buffered)
}

// TestProxySubresources asks a pod through the kube-apiserver's own proxies.
func TestProxySubresources(t *testing.T) {
	cluster := suite.clusters[0]
	cs := clientset(t, suite.direct(cluster))
	ns := scratch(t, cs)
	fakePod(t, cs, ns, http.HandlerFunc(mirror))
	var all []request
	for _, base := range []string{"/api/v1/namespaces/" + ns + "/pods/fake/proxy", "/api/v1/namespaces/" + ns + "/services/fake:http/proxy", "/api/v1/namespaces/" + ns + "/services/http:fake:80/proxy"} {
		for _, r := range []request{
			{name: "get", method: "GET", path: base + "/a/b?c=d&c=e", header: http.Header{"X-E2e": {"one", "two"}}},
			{name: "the root", method: "GET", path: base + "/"},
			{name: "without a slash", method: "GET", path: base, refused: true},
			{name: "post", method: "POST", path: base + "/a", header: content("text/plain"), body: strings.Repeat("x", 3<<20)},
			{name: "put", method: "PUT", path: base + "/a", body: "x"},
			{name: "delete", method: "DELETE", path: base + "/a"},
			{name: "options", method: "OPTIONS", path: base + "/a", refused: true},
			{name: "head", method: "HEAD", path: base + "/a"},
			{name: "redirect", method: "GET", path: base + "/elsewhere", refused: true},
			{name: "error", method: "GET", path: base + "/broken"},
		} {
			r.name = strings.ReplaceAll(strings.TrimPrefix(base, "/api/v1/namespaces/"+ns+"/"), "/", " ") + "/" + r.name
			all = append(all, r)
		}
	}
	compare(t, cluster, all)
	for _, door := range suite.doors(cluster) {
		t.Run("upgrade/"+door.name, func(t *testing.T) {
			conn, resp := upgrade(t, door.cfg, all[0].path, http.Header{"Upgrade": {"e2e"}})
			if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "e2e" {
				t.Fatalf("answer %d, %v", resp.StatusCode, resp.Header)
			}
			const sent = "over and back"
			if _, err := io.WriteString(conn, sent); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != sent {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// upgrade asks for the protocol that header names, and gives the connection after
// the answer.
func upgrade(t *testing.T, cfg *rest.Config, path string, header http.Header) (io.ReadWriteCloser, *http.Response) {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.NextProtos = []string{"http/1.1"}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, cfg.Host+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = header
	req.Header.Set("Connection", "Upgrade")
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	conn, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		body, _ := io.ReadAll(resp.Body)
		t.Fatalf("answer %d: %.300s", resp.StatusCode, body)
	}
	return conn, resp
}

// TestBodiesAreStreamed sends a part of a body when the one before has arrived,
// both ways: whoever waits for the rest first stops the test.
func TestBodiesAreStreamed(t *testing.T) {
	const parts, size = 32, 1 << 20
	cluster := suite.clusters[0]
	cs := clientset(t, suite.direct(cluster))
	ns := scratch(t, cs)
	arrived := make(chan struct{})
	fakePod(t, cs, ns, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		part := make([]byte, size)
		for range parts {
			if r.Method == http.MethodGet {
				_, err := w.Write(part)
				if err = errors.Join(err, http.NewResponseController(w).Flush()); err != nil {
					return
				}
			} else if _, err := io.ReadFull(r.Body, part); err != nil {
				return
			}
			select {
			case arrived <- struct{}{}:
			case <-r.Context().Done():
				return
			}
		}
	}))
	path := "/api/v1/namespaces/" + ns + "/pods/fake/proxy/"
	for _, door := range suite.doors(cluster) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		t.Cleanup(cancel)
		client, err := rest.HTTPClientFor(door.cfg)
		if err != nil {
			t.Fatal(err)
		}
		next := func() error {
			select {
			case <-arrived:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		t.Run(door.name+"/up", func(t *testing.T) {
			body, feed := io.Pipe()
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, door.cfg.Host+path, body)
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				for i := range parts {
					_, err := feed.Write(make([]byte, size))
					if err = errors.Join(err, next()); err != nil {
						_ = feed.CloseWithError(fmt.Errorf("part %d: %w", i, err))
						return
					}
				}
				_ = feed.Close()
			}()
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("answered %d", resp.StatusCode)
			}
		})
		t.Run(door.name+"/down", func(t *testing.T) {
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, door.cfg.Host+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			for i := range parts {
				if _, err := io.CopyN(io.Discard, resp.Body, size); err != nil {
					t.Fatalf("part %d: %v", i, err)
				}
				if err := next(); err != nil {
					t.Fatalf("part %d: %v", i, err)
				}
			}
			if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
				t.Errorf("%d bytes after the end, %v", len(rest), err)
			}
		})
	}
}

// TestTooLongHeaders wants of every door of ours the same refusal, by HTTP/1.1
// and HTTP/2. What is shorter is in TestAnswersAreEqual.
func TestTooLongHeaders(t *testing.T) {
	for _, door := range suite.doors(suite.clusters[0])[1:] {
		for _, protocol := range []string{"http/1.1", "h2"} {
			for _, size := range []int{66 << 10, 200 << 10} {
				t.Run(fmt.Sprintf("%s/%s/%d", door.name, protocol, size), func(t *testing.T) {
					cfg := rest.CopyConfig(door.cfg)
					cfg.NextProtos = []string{protocol}
					got, err := ask(t.Context(), cfg, request{method: http.MethodGet, path: "/version", header: http.Header{"X-E2e": {strings.Repeat("x", size)}}})
					if err != nil {
						t.Fatal(err)
					}
					var status metav1.Status
					if err := json.Unmarshal([]byte(got.Body), &status); got.Code != 431 || status.Code != 431 || err != nil {
						t.Errorf("answered %d %.300s, want a Status with code 431", got.Code, got.Body)
					}
				})
			}
		}
	}
}
