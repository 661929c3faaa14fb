package proxyapi

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// FuzzRequestInfo forwards what a client sends, reads it again as the managed
// kube-apiserver does, and wants the two to mean the same: what was authorized
// on the hub is what is done on the cluster.
func FuzzRequestInfo(f *testing.F) {
	for _, path := range []string{
		"/api/v1/namespaces/a/pods/b/exec?command=sh", "/api/v1/pods?watch=true", "/api/v1/watch/pods", "/apis/apps/v1/namespaces/n/deployments/d/scale",
		"/api/v1/namespaces/a%2Fb/pods", "//api/v1/pods", "/api//v1/pods", "/api/v1/proxy/namespaces/a/pods/b", "/api/v1/nodes/n/%70roxy/x", "/api/v1/pods?fieldSelector=metadata.name%3Dx&watch=1",
		"/api/v1/pods?watch=false&watch=true", "/API/v1/pods", "/api/v1/namespaces/kube-system/secrets/x?fieldSelector=;", "/api/v1/namespaces/a/services/b:c/proxy-service/d",
	} {
		for _, method := range []string{"GET", "POST", "DELETE", "PATCH", "OPTIONS"} {
			f.Add(method, path)
		}
	}
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	f.Fuzz(func(t *testing.T, method, path string) {
		// Requests that net/http itself refuses do not come to us.
		line, err := http.ReadRequest(bufio.NewReader(strings.NewReader(fmt.Sprintf("%s /c%s HTTP/1.1\r\nHost: x\r\n\r\n", method, path))))
		if err != nil || method == http.MethodConnect {
			return
		}
		c, err := scope.Endpoints{}.NewScope(line)
		if err != nil || c.Inner == nil || c.Target.ForService() {
			return
		}
		out := &url.URL{Scheme: "https", Host: "agent"}
		if err := c.Target.Apply(out); err != nil {
			t.Fatal(err)
		}
		there, err := http.ReadRequest(bufio.NewReader(strings.NewReader(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: x\r\n\r\n", method, out.RequestURI()))))
		if err != nil {
			t.Fatalf("what is forwarded for %q cannot be read: %v", path, err)
		}
		want, err := factory.NewRequestInfo(there)
		if err != nil {
			t.Fatalf("%q was authorized, and the kube-apiserver says %v", path, err)
		}
		if diff := cmp.Diff(want, c.Inner); diff != "" {
			t.Fatalf("%s %q (-kube-apiserver +hub):\n%s", method, path, diff)
		}
		if want.IsResourceRequest && want.Verb != "" && c.Info.Verb != want.Verb {
			t.Fatalf("verb %q on the hub, %q there", c.Info.Verb, want.Verb)
		}
		if slices.Contains([]string{"exec", "attach", "portforward", "proxy"}, want.Subresource) && !c.Leaves {
			t.Fatalf("%s %q needs no right to streams", method, path)
		}
	})
}

// FuzzHeaders sends any header with a request of jane's, and wants the agent to
// be told of jane and nobody else.
func FuzzHeaders(f *testing.F) {
	for _, name := range []string{"X-Remote-User", "x_remote_user", "X-Remote_Group", "Impersonate-User", "impersonate_extra-A", "Authorization", "AUTHORIZATION", "Authorization_", "Connection", "Cluster-Proxy-Service", "Cluster-Proxy-Agent", "cluster_proxy_agent",
		"X-Forwarded-For", "Sec-WebSocket-Protocol", "X-Remote-Extra-%41", "Te", "Trailer", "X--Remote-User", "Forwarded", "Proxy-Authorization"} {
		f.Add(name, "system:masters", name, "Bearer hub-token")
	}
	f.Add("Connection", "X-Remote-User", "Sec-Websocket-Protocol", agentapi.WebSocketToken+"aHVi, v5.channel.k8s.io")
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		raw := fmt.Sprintf("GET /c/api HTTP/1.1\r\nHost: x\r\n%s: %s\r\n%s: %s\r\n\r\n", name1, value1, name2, value2)
		in, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil || in.RequestURI != "/c/api" || filter.CheckConnection(in.Header) != nil {
			return
		}
		c, err := scope.Endpoints{}.NewScope(in)
		if err != nil {
			return
		}
		c.User = &user.DefaultInfo{Name: "jane", UID: "1", Groups: []string{"devs"}}
		in = in.WithContext(context.WithValue(in.Context(), scope.Key{}, c))
		r := &httputil.ProxyRequest{In: in, Out: in.Clone(in.Context())}
		(&relay.Relay{Filters: &filter.Filters{}}).Rewrite(r)
		if err := agentclient.SetHeaders(r.Out, c.To(), c.Identity()); err != nil {
			t.Fatal(err)
		}
		want := map[string][]string{"X-Remote-User": {"jane"}, "X-Remote-Uid": {"1"}, "X-Remote-Group": {"devs"}}
		got := identityHeaders(r.Out)
		for _, line := range got["Sec-Websocket-Protocol"] {
			if strings.Contains(line, agentapi.WebSocketToken) {
				t.Fatalf("a token is left in %q", line)
			}
		}
		delete(got, "Sec-Websocket-Protocol")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q (-want +got):\n%s", raw, diff)
		}
	})
}
