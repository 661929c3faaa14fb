package proxyapi

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"

	apiproxy "k8s.io/apimachinery/pkg/util/proxy"
	"k8s.io/apiserver/pkg/util/proxy"
	restclient "k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// kubelet serves exec, attach and port-forward by SPDY. It says hello on each stream that
// the user reads, and goes on until the user ends.
func kubelet(w http.ResponseWriter, r *http.Request) {
	protocols := []string{"v4.channel.k8s.io", "portforward.k8s.io"}
	if _, err := httpstream.Handshake(r, w, protocols); err != nil {
		return
	}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, replied <-chan struct{}) error {
		switch s.Headers().Get("streamtype") {
		case "stdout", "data":
			go func() {
				<-replied
				_, _ = io.WriteString(s, "hello\n")
			}()
		}
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	<-conn.CloseChan()
}

// kubeAPIServer returns what a kube-apiserver does with these requests: WebSockets become
// SPDY on the way to the kubelet.
func kubeAPIServer(t testing.TB) http.Handler {
	t.Helper()
	return kubeAPIServerOf(t, kubelet)
}

// kubeAPIServerOf is a kube-apiserver before another kubelet.
func kubeAPIServerOf(t testing.TB, kubelet http.HandlerFunc) http.Handler {
	t.Helper()
	node := httptest.NewServer(kubelet)
	t.Cleanup(node.Close)
	to, err := url.Parse(node.URL)
	if err != nil {
		t.Fatal(err)
	}
	straight := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, ErrorLog: relay.Discard}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol := r.Header.Get("Sec-Websocket-Protocol")
		switch {
		case strings.HasPrefix(protocol, "SPDY/3.1+"):
			location := *to
			location.Path = r.URL.Path
			upgrades := apiproxy.NewUpgradeAwareHandler(&location, http.DefaultTransport, false, true, noUpgrade{})
			proxy.NewTunnelingHandler(upgrades).ServeHTTP(w, r)
		case protocol != "":
			location := *to
			location.Path, location.RawQuery = r.URL.Path, r.URL.RawQuery
			tty := r.URL.Query().Get("tty") == "true"
			proxy.NewStreamTranslatorHandler(&location, http.DefaultTransport, 0, proxy.Options{Stdout: true, Stderr: !tty, Stdin: true, Tty: tty}).ServeHTTP(lingering{w}, r)
		default:
			straight.ServeHTTP(w, r)
		}
	})
}

// lingering has a connection that was taken over closed as soon as the other side has. Kubernetes'
// translator closes it when it has written all; with a ping of the user unread, which there is in
// a session of five seconds, the kernel would reset it, and what is on its way would be lost.
type lingering struct{ http.ResponseWriter }

func (w lingering) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, buffer, err := http.NewResponseController(w.ResponseWriter).Hijack()
	return lingeringConn{conn}, buffer, err
}

type lingeringConn struct{ net.Conn }

func (c lingeringConn) Close() error {
	half, ok := c.Conn.(interface{ CloseWrite() error })
	if !ok {
		return c.Conn.Close()
	}
	go func() {
		_, _ = io.Copy(io.Discard, c.Conn)
		_ = c.Conn.Close()
	}()
	return half.CloseWrite()
}

// noUpgrade answers what cannot be upgraded.
type noUpgrade struct{}

func (noUpgrade) Error(w http.ResponseWriter, _ *http.Request, err error) {
	status.Write(w, status.New(http.StatusBadGateway, err.Error()).ErrStatus)
}

// config is that of a client of the cluster's API.
func (w *world) config(token string) *restclient.Config {
	w.t.Helper()
	return &restclient.Config{Host: w.url + "/cluster1", BearerToken: token, TLSClientConfig: restclient.TLSClientConfig{CAFile: w.dir + "/proxy-api-ca.crt"}}
}

// dialWith sends a request on a connection of its own and reads the header of the answer.
func (w *world) dialWith(request string) (net.Conn, *bufio.Reader) {
	w.t.Helper()
	config := w.client("http/1.1").Transport.(*http.Transport).TLSClientConfig.Clone()
	config.NextProtos = []string{"http/1.1"}
	conn, err := tls.Dial("tcp", strings.TrimPrefix(w.url, "https://"), config)
	if err != nil {
		w.t.Error(err)
		return nil, nil
	}
	_, _ = io.WriteString(conn, request)
	answer := bufio.NewReader(conn)
	resp, err := http.ReadResponse(answer, &http.Request{Method: strings.Fields(request)[0]})
	if err != nil || resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
		w.t.Errorf("%q: %v %v, want 200 or 101", request, resp, err)
	}
	return conn, answer
}
