package hostile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// endless are requests that end when one side wants. WEB is a pod's name.
var endless = []struct {
	kind, method, path string
	lines              []string
}{
	{"watch", http.MethodGet, "/api/v1/namespaces/default/limitranges?watch=1", nil},
	{"logs -f", http.MethodGet, "/api/v1/namespaces/default/pods/WEB/log?follow=1", nil},
	{"exec", http.MethodGet, "/api/v1/namespaces/default/pods/WEB/exec?command=cat&stdin=1&stdout=1", socket},
	{"attach", http.MethodGet, "/api/v1/namespaces/default/pods/WEB/attach?stdout=1", socket},
	{"port-forward", http.MethodPost, "/api/v1/namespaces/default/pods/WEB/portforward", []string{"Connection: Upgrade", "Upgrade: SPDY/3.1", "X-Stream-Protocol-Version: portforward.k8s.io", "Content-Length: 0"}},
}

// openStream is a request that a user has open.
type openStream struct {
	// of says whose it is, or why it must end.
	of, kind, endpoint string
	// ended gets one time.
	ended chan time.Time
}

// openAll opens every kind of stream that an endpoint has, for one user.
func (s *Suite) openAll(t *testing.T, d endpoint, of, cluster, token string) (open []*openStream) {
	t.Helper()
	for _, e := range endless {
		path := strings.ReplaceAll(e.path, "WEB", s.webPod(t))
		conn := d.dial(t, "http/1.1")
		answer := opened(t, conn, d.request(e.method, path, token, "", e.lines...), of+"'s "+e.kind+" at "+d.name)
		open = append(open, follow(of, e.kind, d.name, answer))
	}
	if d.name == "direct" {
		open = append(open, s.openConnect(t, d, of, cluster, token))
	}
	return open
}

// openConnect opens a watch on a connection to the kube-apiserver itself, as its
// administrator: who reads it there says nothing about who may have the connection.
func (s *Suite) openConnect(t *testing.T, d endpoint, of, cluster, token string) *openStream {
	t.Helper()
	conn := d.dial(t, "http/1.1")
	authority := cluster + ":443"
	opened(t, conn, requestText(http.MethodConnect, authority, authority, "", "", "Proxy-Authorization: Bearer "+token), of+"'s CONNECT")
	config, err := rest.TLSConfigFor(s.Lab.Managed[s.attacker()].RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	config.ServerName, config.NextProtos = "127.0.0.1", []string{"http/1.1"}
	inner := tls.Client(conn, config)
	answer := opened(t, inner, requestText(http.MethodGet, endless[0].path, "kubernetes", "", ""), of+"'s watch in CONNECT")
	return follow(of, "CONNECT", d.name, answer)
}

// opened sends a request and wants an answer that goes on.
func opened(t *testing.T, conn net.Conn, request, what string) io.Reader {
	t.Helper()
	err := conn.SetReadDeadline(time.Now().Add(testTimeout))
	_, err1 := io.WriteString(conn, request)
	if err := errors.Join(err, err1); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	reader := bufio.NewReader(conn)
	method, _, _ := strings.Cut(request, " ")
	response, err := http.ReadResponse(reader, &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%s: reading the answer: %v", what, err)
	}
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(response.Body)
		t.Fatalf("%s: %d %.300s, want 200 or 101", what, response.StatusCode, body)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return reader
}

// follow notes when a stream ends.
func follow(of, kind, endpoint string, answer io.Reader) *openStream {
	o := &openStream{of: of, kind: kind, endpoint: endpoint, ended: make(chan time.Time, 1)}
	go func() {
		_, _ = io.Copy(io.Discard, answer)
		o.ended <- time.Now()
	}()
	return o
}

// webPod is a pod of the attacker's cluster with an endless log.
func (s *Suite) webPod(t *testing.T) string {
	t.Helper()
	return suite.WebPod(t, s.managed[s.attacker()])
}

// mayDoAllOn lets service accounts of the hub do everything on a cluster.
func (s *Suite) mayDoAllOn(t *testing.T, cluster string, accounts ...string) {
	t.Helper()
	bindings := s.managed[cluster].RbacV1().ClusterRoleBindings()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: accounts[0]}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"}}
	for _, account := range accounts {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: identity.OnManagedCluster("system:serviceaccount:default:" + account)})
	}
	if _, err := bindings.Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bindings.Delete(context.Background(), binding.Name, metav1.DeleteOptions{}) })
	suite.Eventually(t, "the cluster to know the rights of "+accounts[0], func() error {
		answer, err := s.managed[cluster].AuthorizationV1().SubjectAccessReviews().Create(t.Context(), &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: binding.Subjects[0].Name, ResourceAttributes: &authorizationv1.ResourceAttributes{Resource: "pods", Subresource: "exec", Verb: "create"},
		}}, metav1.CreateOptions{})
		if err == nil && !answer.Status.Allowed {
			err = errors.New("not allowed")
		}
		return err
	})
}

// cutOff is the table of how long what was taken away went on: a row for each kind
// at each endpoint, a column for each cause.
type cutOff struct {
	t *testing.T
	// began and limits are by cause: whose it is, or why it ends.
	began         map[string]time.Time
	limits        map[string]time.Duration
	columns, rows []string
	cells         map[[2]string]string
}

func newCutOff(t *testing.T) *cutOff {
	return &cutOff{t: t, began: map[string]time.Time{}, limits: map[string]time.Duration{}, cells: map[[2]string]string{}}
}

// begin is called when something is about to be taken away, which must end within
// limit.
func (c *cutOff) begin(of string, limit time.Duration) {
	c.began[of], c.limits[of] = time.Now(), limit
	c.columns = append(c.columns, of)
}

// note fails the test if something ended too early or too late.
func (c *cutOff) note(of, kind, endpoint string, ended time.Time) {
	c.t.Helper()
	took, row := ended.Sub(c.began[of]), kind+", "+endpoint
	if !slices.Contains(c.rows, row) {
		c.rows = append(c.rows, row)
	}
	c.cells[[2]string{row, of}] = fmt.Sprintf("%.1f", took.Seconds())
	if limit := c.limits[of]; took < 0 || took > limit {
		c.t.Errorf("%s: %s ended %s after it was taken away, want at most %s", of, row, took.Round(time.Millisecond), limit)
	}
}

// wait waits for the end of streams.
func (c *cutOff) wait(streams []*openStream) {
	c.t.Helper()
	limit := time.NewTimer(testTimeout)
	defer limit.Stop()
	for _, o := range streams {
		select {
		case at := <-o.ended:
			c.note(o.of, o.kind, o.endpoint, at)
		case <-limit.C:
			c.t.Fatalf("%s's %s at %s goes on", o.of, o.kind, o.endpoint)
		}
	}
}

func (c *cutOff) String() string {
	var text bytes.Buffer
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "seconds\t"+strings.Join(c.columns, "\t"))
	for _, row := range c.rows {
		fmt.Fprint(w, row)
		for _, column := range c.columns {
			fmt.Fprint(w, "\t"+c.cells[[2]string{row, column}])
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush()
	return text.String()
}
