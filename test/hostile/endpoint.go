package hostile

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	clusterproxyv1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

const clustersPath = "/apis/clusterproxy.open-cluster-management.io/v1alpha1/clusters/"

const sessionsPath = "/apis/clusterproxy.open-cluster-management.io/v1alpha1/sessions"

// Wishes for another protocol, as header lines.
var (
	socket = []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: v5.channel.k8s.io"}
	spdy   = []string{"Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: v4.channel.k8s.io"}
)

// endpoint is a way for the hub's users to a managed cluster. Requests go through
// it as they are written: no client library makes them right.
type endpoint struct {
	name, address, host string
	// prefix is what the cluster's paths begin with.
	prefix string
	config *tls.Config
}

func (s *Suite) endpoints(t *testing.T, cluster string) []endpoint {
	t.Helper()
	admin := s.HubConfig()
	if err := rest.LoadTLSFiles(admin); err != nil {
		t.Fatal(err)
	}
	hub, err := url.Parse(admin.Host)
	if err != nil {
		t.Fatal(err)
	}
	api, aggregator := trusting(t, s.HubCA), trusting(t, admin.CAData)
	return []endpoint{
		{"direct", s.ProxyAPI, s.ProxyAPI, "/" + cluster, api},
		{"host", s.ProxyAPI, cluster + "." + suite.ClusterDomain, "", api},
		{"aggregated", hub.Host, hub.Host, clustersPath + cluster + "/proxy", aggregator},
	}
}

// trusting is for a client without a certificate.
func trusting(t *testing.T, ca []byte) *tls.Config {
	t.Helper()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, ca, 0o600); err != nil {
		t.Fatal(err)
	}
	return pkitest.Load(t, pki.Files{CA: file}).ClientConfig("127.0.0.1")
}

// dial opens a connection that ends with the test.
func (d endpoint) dial(t *testing.T, protocol string) *tls.Conn {
	t.Helper()
	config := d.config.Clone()
	config.NextProtos = []string{protocol}
	conn, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", d.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.(*tls.Conn)
}

// request is the text of one, for send. Lines are of its header.
func (d endpoint) request(method, path, token, body string, lines ...string) string {
	return requestText(method, d.prefix+path, d.host, token, body, lines...)
}

func requestText(method, target, host, token, body string, lines ...string) string {
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\n", method, target, host)
	if token != "" {
		text += "Authorization: Bearer " + token + "\r\n"
	}
	for _, line := range lines {
		text += line + "\r\n"
	}
	if body != "" {
		text += fmt.Sprintf("Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return text + "\r\n" + body
}

// send gives the answer to a request on a connection of its own; the code is 0
// if the connection ended without one.
func (d endpoint) send(t *testing.T, request string) (code int, header http.Header, body string) {
	t.Helper()
	return exchange(d.dial(t, "http/1.1"), request)
}

// exchange is send on a connection, which it closes.
func exchange(conn net.Conn, request string) (code int, header http.Header, body string) {
	defer conn.Close()
	if _, err := io.WriteString(conn, request); err != nil {
		return 0, nil, err.Error()
	}
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		return 0, nil, err.Error()
	}
	if response.StatusCode == http.StatusSwitchingProtocols || method == http.MethodConnect {
		return response.StatusCode, response.Header, ""
	}
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return response.StatusCode, response.Header, string(content)
}

// hubUser is MakeUser, of whose rights the hub knows.
func (s *Suite) hubUser(t *testing.T, name string, rules ...rbacv1.PolicyRule) (token string) {
	t.Helper()
	token = s.MakeUser(t, name, rules...)
	for _, rule := range rules {
		s.waitForRight(t, name, rule)
	}
	return token
}

// waitForRight waits until the hub knows of a right: that it did not is
// remembered for seconds by those who ask.
func (s *Suite) waitForRight(t *testing.T, account string, rule rbacv1.PolicyRule) {
	t.Helper()
	verb, name := rule.Verbs[0], ""
	if len(rule.ResourceNames) > 0 {
		name = rule.ResourceNames[0]
	}
	resource, sub, _ := strings.Cut(rule.Resources[0], "/")
	suite.Eventually(t, "the hub to know the rights of "+account, func() error {
		answer, err := s.Hub.AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:default:" + account,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: resource, Subresource: sub, Name: name, Verb: verb},
		}}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = fmt.Errorf("not allowed: %s", answer.Status.Reason)
		}
		return err
	})
}

// mayReach is the right to send requests with these verbs to one cluster.
func mayReach(cluster string, verbs ...string) rbacv1.PolicyRule {
	return suite.MayReach(verbs, cluster)
}

// mayStream is the right to exec and the like on clusters.
func mayStream(clusters ...string) rbacv1.PolicyRule {
	return suite.Rule(clusterproxyv1alpha1.GroupVersion.Group, "clusters/stream", []string{"create"}, clusters...)
}
