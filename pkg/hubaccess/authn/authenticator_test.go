package authn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/outage"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/status"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// presenting is a request on a connection with a client certificate of ca.
func presenting(t *testing.T, ca *pki.CA, user string) *http.Request {
	t.Helper()
	files := pkitest.Issue(t, t.TempDir()+"/", ca, pki.Leaf{CommonName: user, Client: true}, ca)
	pair, err := tls.LoadX509KeyPair(files.Cert, files.Key)
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(http.MethodGet, "/cluster1/api", nil)
	r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{pair.Leaf}}
	return r
}

// TestCertificatesBeforeTheHubsCAs wants the owner of a good certificate told to try again
// before the hub's CAs have been read, not to look for another certificate.
func TestCertificatesBeforeTheHubsCAs(t *testing.T) {
	ca, other := pkitest.NewCA(t, "hub"), pkitest.NewCA(t, "other")
	config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: configNamespace, Name: configName}, Data: map[string]string{
		"client-ca-file": string(ca.CertPEM()), "requestheader-client-ca-file": string(ca.CertPEM()),
	}}
	hub := fake.NewClientset(config)
	a, err := NewAuthenticator(hub, nil, outage.New(hub, 0, prometheus.NewGauge(prometheus.GaugeOpts{}), prometheus.NewCounter(prometheus.CounterOpts{})))
	if err != nil {
		t.Fatal(err)
	}
	known, unknown := presenting(t, ca, "jane"), presenting(t, other, "jane")
	for name, r := range map[string]*http.Request{"known": known, "unknown": unknown} {
		u, _, err := a.Authenticate(r, "cluster1")
		var refused *status.Error
		if u != nil || !errors.As(err, &refused) || refused.ErrStatus.Code != http.StatusServiceUnavailable || !strings.Contains(refused.ErrStatus.Message, "try again") {
			t.Errorf("%s certificate: user %v, error %v, want to be told to try again", name, u, err)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	defer func() { stop(); running.Wait() }()
	wait.Poll{Every: 10 * time.Millisecond}.Success(t, "jane is known", func() error {
		u, _, err := a.Authenticate(known, "cluster1")
		if err == nil && u.GetName() != "jane" {
			t.Errorf("user %v, want jane", u)
		}
		return err
	})
	wait.Poll{Every: 10 * time.Millisecond}.Until(t, "the other one is refused", func() bool {
		u, _, err := a.Authenticate(unknown, "cluster1")
		if u != nil {
			t.Fatalf("the certificate of another CA is user %v", u)
		}
		var refused *status.Error
		return errors.As(err, &refused) && refused.ErrStatus.Code == http.StatusUnauthorized
	})
}
