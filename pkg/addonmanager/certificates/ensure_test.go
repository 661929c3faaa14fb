package certificates

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

const hubNamespace = "hub"

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func params() Params {
	return Params{
		SignerNamespace: hubNamespace, SignerName: "cluster-proxy-signer", Namespace: hubNamespace,
		Owner:             metav1.OwnerReference{APIVersion: "proxy.open-cluster-management.io/v1alpha1", Kind: "ManagedProxyConfiguration", Name: "cluster-proxy", UID: "1"},
		ProxyServerSecret: "proxy-server", AgentServerSecret: "agent-server", ProxyClientSecret: "proxy-client",
		ServerNames: []string{"localhost", "127.0.0.1", "proxy-entrypoint.hub.svc"}, UserServerNames: []string{"localhost", "127.0.0.1"},
	}
}

// newClient gives objects a UID, as the API server does.
func newClient(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			object.SetUID(types.UID(object.GetName()))
			return c.Create(ctx, object, options...)
		},
	}).Build()
}

func get(t *testing.T, c client.Client, name string) *corev1.Secret {
	t.Helper()
	var s corev1.Secret
	if err := c.Get(context.Background(), client.ObjectKey{Namespace: hubNamespace, Name: name}, &s); err != nil {
		t.Fatal(err)
	}
	return &s
}

func TestEnsureMakesEverythingOnce(t *testing.T) {
	c := newClient()
	first, err := Ensure(t.Context(), c, params(), start)
	if err != nil {
		t.Fatal(err)
	}
	if len(first.Expiry) != 5 || first.RenewAfter <= 0 {
		t.Errorf("Ensure = %+v, want 5 expiries and a time to renew", first)
	}
	for _, ca := range []string{"cluster-proxy-signer", AgentSignerSecret} {
		if owners := get(t, c, ca).OwnerReferences; len(owners) != 0 {
			t.Errorf("CA %q is owned by %v, want no owner", ca, owners)
		}
	}
	before := map[string]string{}
	for _, name := range []string{"cluster-proxy-signer", AgentSignerSecret, "proxy-server", "agent-server", "proxy-client", APIClientSecret, UserServingSecret, HubBundleSecret, AgentBundleSecret} {
		before[name] = get(t, c, name).ResourceVersion
	}
	if _, err := Ensure(t.Context(), c, params(), start.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	for name, version := range before {
		if get(t, c, name).ResourceVersion != version {
			t.Errorf("secret %q was written again for nothing", name)
		}
	}
	if s := get(t, c, "proxy-server"); s.Type != corev1.SecretTypeTLS || len(s.Data[caKey]) != 0 {
		t.Errorf("proxy-server: type %q, keys %v; want kubernetes.io/tls without a CA", s.Type, s.Data)
	}
	for _, bundle := range []string{HubBundleSecret, AgentBundleSecret} {
		if len(get(t, c, bundle).Data) != 1 {
			t.Errorf("bundle %q holds more than the CA", bundle)
		}
	}
}

func TestFleetIndexHasACertificateWhileItIsWanted(t *testing.T) {
	c, with := newClient(), params()
	with.FleetIndex = true
	result, err := Ensure(t.Context(), c, with, start)
	if err != nil || result.Expiry[IndexClientSecret].IsZero() {
		t.Fatal(result, err)
	}
	authority, err := readAuthority(get(t, c, "cluster-proxy-signer"))
	if err != nil {
		t.Fatal(err)
	}
	role := pki.Leaf{CommonName: string(identity.RoleFleetIndex), Organizations: []string{identity.Organization},
		Client: true, Server: true, DNSNames: []string{identity.FleetIndexHost}, Validity: leafValidity}
	if reason := pki.RenewalReason(get(t, c, IndexClientSecret).Data[corev1.TLSCertKey], authority.current, role, start); reason != "" {
		t.Errorf("the certificate is none of the fleet index: %s", reason)
	}
	if _, err := Ensure(t.Context(), c, params(), start); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: hubNamespace, Name: IndexClientSecret}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		t.Errorf("without the index there is a certificate: %v", err)
	}
}

func TestEnsureRenews(t *testing.T) {
	c := newClient()
	if _, err := Ensure(t.Context(), c, params(), start); err != nil {
		t.Fatal(err)
	}
	ca, leaf := get(t, c, "cluster-proxy-signer").ResourceVersion, get(t, c, "proxy-server").ResourceVersion
	at := start.Add(leafValidity*2/3 + time.Hour)
	result, err := Ensure(t.Context(), c, params(), at)
	if err != nil {
		t.Fatal(err)
	}
	if get(t, c, "proxy-server").ResourceVersion == leaf {
		t.Error("a leaf with less than a third of its life left was kept")
	}
	if get(t, c, "cluster-proxy-signer").ResourceVersion != ca {
		t.Error("the CA was written")
	}
	if result.Expiry["proxy-server"].Before(at.Add(leafValidity - time.Hour)) {
		t.Errorf("expiry is %v", result.Expiry["proxy-server"])
	}
	p := params()
	p.ServerNames = append(p.ServerNames, "10.1.2.3")
	leaf = get(t, c, "agent-server").ResourceVersion
	client := get(t, c, "proxy-client").ResourceVersion
	if _, err := Ensure(t.Context(), c, p, at); err != nil {
		t.Fatal(err)
	}
	if get(t, c, "agent-server").ResourceVersion == leaf || get(t, c, "proxy-client").ResourceVersion != client {
		t.Error("a further name must renew the servers' certificates alone")
	}
}

func TestEnsureNeverReplacesABrokenCA(t *testing.T) {
	broken := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: hubNamespace, Name: "cluster-proxy-signer"}, Data: map[string][]byte{"ca.crt": []byte("x")}}
	c := newClient(broken)
	if _, err := Ensure(t.Context(), c, params(), start); err == nil {
		t.Error("a broken CA was accepted")
	}
	if string(get(t, c, "cluster-proxy-signer").Data["ca.crt"]) != "x" {
		t.Error("a broken CA was replaced")
	}
}

// A name of a leaf's Secret that is a CA's must not cost the CA.
func TestCASurvivesALeafOfItsName(t *testing.T) {
	for _, ca := range []string{"cluster-proxy-signer", AgentSignerSecret} {
		c := newClient()
		if _, err := Ensure(t.Context(), c, params(), start); err != nil {
			t.Fatal(err)
		}
		p := params()
		p.ProxyServerSecret = ca
		_, err := Ensure(t.Context(), c, p, start)
		s := get(t, c, ca)
		if _, parseErr := pki.ParseCA(pki.KeyPair{CertPEM: s.Data[caCert], KeyPEM: s.Data[caKey]}); parseErr != nil {
			t.Errorf("CA %q is lost: %v (Ensure said %v)", ca, parseErr, err)
		}
	}
}

// Upstream made the configuration the owner of the CA.
func TestCAOfUpstreamLosesItsOwner(t *testing.T) {
	pair, err := pki.NewCA("upstream", start, caValidity)
	if err != nil {
		t.Fatal(err)
	}
	c := newClient(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: hubNamespace, Name: "cluster-proxy-signer", OwnerReferences: []metav1.OwnerReference{params().Owner}},
		Data:       map[string][]byte{caCert: pair.CertPEM, caKey: pair.KeyPEM},
	})
	if _, err := Ensure(t.Context(), c, params(), start); err != nil {
		t.Fatal(err)
	}
	s := get(t, c, "cluster-proxy-signer")
	if string(s.Data[caCert]) != string(pair.CertPEM) {
		t.Error("upstream's CA was replaced")
	}
	if len(s.OwnerReferences) != 0 {
		t.Error("upstream's CA still goes with the configuration")
	}
}

// A user's own certificate that cannot be read is the user's; it must not keep
// the proxy servers from theirs.
func TestBrokenUserCertificateAffectsNoOther(t *testing.T) {
	for range 10 {
		c := newClient(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: hubNamespace, Name: UserServingSecret}, Data: map[string][]byte{"tls.crt": []byte("x")}})
		_, _ = Ensure(t.Context(), c, params(), start)
		for _, name := range []string{"proxy-server", "agent-server", "proxy-client", APIClientSecret} {
			var s corev1.Secret
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: hubNamespace, Name: name}, &s); err != nil {
				t.Fatalf("reading Secret %s: %v", name, err)
			}
		}
		if string(get(t, c, UserServingSecret).Data["tls.crt"]) != "x" {
			t.Fatal("the user's certificate was replaced")
		}
	}
}
