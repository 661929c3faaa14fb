package kubectlplugin

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	proxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// echoHub speaks HTTP/2 and TLS as a hub does, and answers with what it was sent. Its watch has one event
// and goes on; its exec is an upgrade.
func echoHub(t *testing.T) (kubeconfig string) {
	t.Helper()
	mux := http.NewServeMux()
	answer := func(path string, object any) {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(object) })
	}
	answer(cli.GroupPath, v1alpha1.ClusterList{Items: []v1alpha1.Cluster{{ObjectMeta: metav1.ObjectMeta{Name: "c1"}}}})
	answer(cli.ViewsPath+"/prod", proxyv1alpha1.FleetView{ObjectMeta: metav1.ObjectMeta{Name: "prod"}})
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s %s %s own-origin=%t", r.Proto, r.Method, r.RequestURI, r.Header.Get("Authorization"), r.Header.Get("Origin") == "https://"+r.Host)
	})
	mux.HandleFunc(cli.GroupPath+"/c1/proxy/watch", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintln(w, "event")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	mux.HandleFunc(cli.GroupPath+"/c1/proxy/page", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		w.Header().Set("Content-Security-Policy", "default-src *")
		w.Header().Set("Service-Worker-Allowed", "/")
	})
	mux.HandleFunc(cli.GroupPath+"/c1/proxy/exec", func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hub-token" || r.Header.Get("Upgrade") != "SPDY/3.1" {
			http.Error(w, "not an upgrade of ann", http.StatusBadRequest)
			return
		}
		conn, stream, err := http.NewResponseController(w).Hijack()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		defer conn.Close()
		fmt.Fprint(stream, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n")
		_ = stream.Flush()
		line, _ := stream.ReadString('\n')
		fmt.Fprint(stream, "over and back: ", line)
		_ = stream.Flush()
	})
	server := httptest.NewUnstartedServer(mux)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return clitest.WriteKubeconfig(t, server)
}

// startLocalProxy runs the command until the end of the test, and returns its URL.
func startLocalProxy(t *testing.T, kubeconfig string, args ...string) string {
	t.Helper()
	read, write := io.Pipe()
	command := newCommand(write, os.Stderr)
	command.SetArgs(append([]string{"--kubeconfig=" + kubeconfig, "proxy", "--port=0"}, args...))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		err := command.ExecuteContext(ctx)
		write.CloseWithError(io.EOF)
		done <- err
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("at its end the command says %v", err)
		}
	})
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(line)[0]
}

func TestLocalProxy(t *testing.T) {
	kubeconfig := echoHub(t)
	const of = "/apis/clusterproxy.open-cluster-management.io/v1alpha1/"
	for target, path := range map[string]string{"c1": of + "clusters/c1/proxy", "@prod": of + "fleetviews/prod/proxy"} {
		t.Run(target, func(t *testing.T) {
			local := startLocalProxy(t, kubeconfig, target)
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, local+"/api/v1/a%2Fb?x=1&y=;&z", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer of-the-program")
			request.Header.Set("Origin", local)
			for name, value := range map[string]string{"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "Http2-Settings": "AAEAAEAA"} {
				request.Header.Set(name, value) // Java's HttpClient offers h2c, which makes no upgrade of the request
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			got, err := io.ReadAll(response.Body)
			if want := "HTTP/2.0 POST " + path + `/api/v1/a%2Fb?x=1&y=;&z Bearer hub-token own-origin=true`; err != nil || string(got) != want {
				t.Errorf("the hub gets %q, %v; want %q", got, err, want)
			}
		})
	}
	if _, _, err := run(t, kubeconfig, "proxy", "c2", "--port=0"); err == nil || !strings.Contains(err.Error(), `no cluster "c2"`) {
		t.Errorf("an unknown cluster: %v", err)
	}
	if _, _, err := run(t, kubeconfig, "proxy", "c1", "--port=0", "--accept-hosts=("); err == nil || !strings.Contains(err.Error(), "--accept-hosts") {
		t.Errorf("no regular expression: %v", err)
	}
}

func TestLocalProxyStreams(t *testing.T) {
	local := startLocalProxy(t, echoHub(t), "c1")
	response, err := http.Get(local + "/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if line, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil || line != "event\n" {
		t.Errorf("the watch says %q, %v", line, err)
	}
	address, err := url.Parse(local)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "POST /exec HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n", address.Host)
	answers := bufio.NewReader(conn)
	upgraded, err := http.ReadResponse(answers, nil)
	if err != nil || upgraded.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("exec is answered %v, %v", upgraded, err)
	}
	fmt.Fprint(conn, "hello\n")
	if line, err := answers.ReadString('\n'); err != nil || line != "over and back: hello\n" {
		t.Errorf("the stream says %q, %v", line, err)
	}
}

// TestLocalProxyRefusesPages sends what a browser sends for a page of somebody else.
func TestLocalProxyRefusesPages(t *testing.T) {
	local := startLocalProxy(t, echoHub(t), "c1")
	address := strings.TrimPrefix(local, "http://")
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		host   string
		header http.Header
		want   int
	}{
		"a program":                 {want: 200},
		"by name":                   {host: "localhost:" + port, want: 200},
		"a page of the proxy":       {header: http.Header{"Sec-Fetch-Site": {"same-origin"}, "Origin": {local}}, want: 200},
		"typed by the user":         {header: http.Header{"Sec-Fetch-Site": {"none"}}, want: 200},
		"a name led here":           {host: "attacker.example:" + port, want: 403},
		"a name that begins right":  {host: "localhost.attacker.example", want: 403},
		"no name":                   {host: ":", want: 403},
		"another site":              {header: http.Header{"Sec-Fetch-Site": {"cross-site"}}, want: 403},
		"another port here":         {header: http.Header{"Sec-Fetch-Site": {"same-site"}}, want: 403},
		"a form of an old browser":  {header: http.Header{"Origin": {"https://attacker.example"}}, want: 403},
		"a WebSocket":               {header: http.Header{"Origin": {"http://127.0.0.1:1"}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}}, want: 403},
		"a sandboxed page":          {header: http.Header{"Origin": {"null"}}, want: 403},
		"two origins":               {header: http.Header{"Origin": {local, "https://attacker.example"}}, want: 403},
		"a page of the same, TLS":   {header: http.Header{"Origin": {"https://" + address}}, want: 403},
		"a name led here, same too": {host: "attacker.example", header: http.Header{"Origin": {"http://attacker.example"}, "Sec-Fetch-Site": {"same-origin"}}, want: 403},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, local+"/api", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.Host = test.host
			request.Header = test.header.Clone()
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != test.want {
				t.Errorf("%d, want %d", response.StatusCode, test.want)
			}
		})
	}
}

// TestLocalProxySandboxesPages opens a page of a pod, which shares its origin with the API.
func TestLocalProxySandboxesPages(t *testing.T) {
	response, err := http.Get(startLocalProxy(t, echoHub(t), "c1") + "/page")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	want := []string{"default-src *", sandbox}
	if got := response.Header.Values("Content-Security-Policy"); !slices.Equal(got, want) || strings.Contains(sandbox, "allow-same-origin") {
		t.Errorf("the page's policy is %q, want %q", got, want)
	}
	if scope := response.Header.Get("Service-Worker-Allowed"); scope != "" {
		t.Errorf("a service worker of the page may control %q", scope)
	}
}
