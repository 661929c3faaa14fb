package e2e

import (
	"context"
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

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
)

// fakePod makes a pod, and a Service for it, whose only port is a handler of this
// test: the kube-apiserver proxies to it as to any other.
func fakePod(t *testing.T, cs *kubernetes.Clientset, ns string, handler http.Handler) {
	t.Helper()
	installed.NeedLab(t, "has a pod that is a program beside the kube-apiserver's process")
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
	server := &http.Server{Handler: handler, ReadHeaderTimeout: suite.Timeout}
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
	address := corev1.EndpointAddress{IP: own.String(), TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: ns, Name: meta.Name}}
	//lint:ignore SA1019 The kube-apiserver's proxy reads Endpoints, and no controller of the lab makes them of slices.
	endpoints := &corev1.Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{Addresses: []corev1.EndpointAddress{address}, Ports: []corev1.EndpointPort{{Name: "http", Port: port}}}}}
	_, err3 := cs.CoreV1().Endpoints(ns).Create(t.Context(), endpoints, metav1.CreateOptions{})
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

// TestProxySubresources asks a pod through the kube-apiserver's own proxies. It
// disturbs nothing: what it makes lies in a namespace of its own.
func TestProxySubresources(t *testing.T) {
	cluster := installed.Clusters[0]
	cs := suite.Clientset(t, installed.Direct(cluster))
	ns := suite.Scratch(t, cs)
	fakePod(t, cs, ns, http.HandlerFunc(mirror))
	var all []suite.Request
	for _, base := range []string{"/api/v1/namespaces/" + ns + "/pods/fake/proxy", "/api/v1/namespaces/" + ns + "/services/fake:http/proxy", "/api/v1/namespaces/" + ns + "/services/http:fake:80/proxy"} {
		for _, r := range []suite.Request{
			{Name: "get", Method: "GET", Path: base + "/a/b?c=d&c=e", Header: http.Header{"X-E2e": {"one", "two"}}},
			{Name: "the root", Method: "GET", Path: base + "/"},
			{Name: "without a slash", Method: "GET", Path: base, Refused: true},
			{Name: "post", Method: "POST", Path: base + "/a", Header: suite.Content("text/plain"), Body: strings.Repeat("x", 3<<20)},
			{Name: "put", Method: "PUT", Path: base + "/a", Body: "x"},
			{Name: "delete", Method: "DELETE", Path: base + "/a"},
			{Name: "options", Method: "OPTIONS", Path: base + "/a", Refused: true},
			{Name: "head", Method: "HEAD", Path: base + "/a"},
			{Name: "redirect", Method: "GET", Path: base + "/elsewhere", Refused: true},
			{Name: "error", Method: "GET", Path: base + "/broken"},
		} {
			r.Name = strings.ReplaceAll(strings.TrimPrefix(base, "/api/v1/namespaces/"+ns+"/"), "/", " ") + "/" + r.Name
			all = append(all, r)
		}
	}
	compare(t, cluster, all)
	for _, endpoint := range installed.Endpoints(cluster) {
		t.Run("upgrade/"+endpoint.Name, func(t *testing.T) {
			conn, resp := upgrade(t, endpoint.Cfg, all[0].Path, http.Header{"Upgrade": {"e2e"}})
			if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get("Upgrade") != "e2e" {
				t.Fatalf("answer %d, %v; want 101 to e2e", resp.StatusCode, resp.Header)
			}
			const sent = "over and back"
			if _, err := io.WriteString(conn, sent); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len(sent))
			if _, err := io.ReadFull(conn, got); err != nil || string(got) != sent {
				t.Errorf("got %q, %v; want %q", got, err, sent)
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
	ctx, cancel := context.WithTimeout(context.Background(), suite.Timeout)
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
		t.Fatalf("answer %d: %.300s; want a connection", resp.StatusCode, body)
	}
	return conn, resp
}
