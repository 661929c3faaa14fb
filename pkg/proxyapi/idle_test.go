package proxyapi

import (
	"context"
	"crypto/tls"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/idlestreams"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// inMemory is a proxy API without a network, and the agent of cluster1 behind it.
func inMemory(t *testing.T, agent http.Handler) (network idlestreams.Network, client *tls.Config) {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), hubCA: pkitest.NewCA(t, "hub"), agentCA: pkitest.NewCA(t, "agents")}
	own := w.issue("client", w.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}, w.hubCA)
	serving := w.issue("proxy-api", w.hubCA, pki.Leaf{CommonName: "server", DNSNames: []string{"proxy-api"}, Server: true}, w.hubCA)
	o := NewOptions()
	o.ProxyServer, o.ProxyCACert, o.ProxyCert, o.ProxyKey, o.AgentCACert = "unused:1", own.CA, own.Cert, own.Key, w.file("agent-ca.crt", w.agentCA.CertPEM())
	o.ServerCert, o.ServerKey, o.MinDrainDuration, o.Namespace = serving.Cert, serving.Key, 0, "addons"
	o.AllowAnonymous = true
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.load(); err != nil {
		t.Fatal(err)
	}
	network = idlestreams.Network{}
	s.dial = network.Dial
	parts, err := newParts(o, s.metrics, fake.NewClientset(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "extension-apiserver-authentication"}, Data: map[string]string{
		"client-ca-file": string(w.hubCA.CertPEM()), "requestheader-client-ca-file": string(w.hubCA.CertPEM()),
	}}), fakeClusters{"cluster1": {}}, &fakeViews{}, &fakePolicies{})
	if err != nil {
		t.Fatal(err)
	}
	leaf := pki.Leaf{CommonName: identity.AgentCommonName("cluster1"), DNSNames: []string{identity.HandlerHost("cluster1")}, Server: true}
	config := pkitest.Load(t, w.issue("agent", w.agentCA, leaf, w.hubCA)).ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	server := &http.Server{Handler: agent, TLSConfig: config}
	agents := network.Listen(w.handlerAddress("cluster1"))
	go func() { _ = server.ServeTLS(agents, "", "") }()
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = parts.authenticator.Run(ctx) })
	listener := network.Listen("proxy-api:443")
	running.Go(func() {
		h, err := s.newHandler(parts, ctx)
		if err == nil {
			err = s.serve(ctx, context.WithoutCancel(ctx), listener, h, func() {})
		}
		if err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		running.Wait()
		s.agents.Close()
		_ = server.Close()
	})
	return network, pkitest.Load(t, pki.Files{CA: filepath.Join(w.dir, "proxy-api-ca.crt")}).ClientConfig("proxy-api")
}

func TestIdleStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network, config := inMemory(t, idlestreams.Server(t))
		idlestreams.Check(t, network, "proxy-api:443", "/cluster1", config)
	})
}
