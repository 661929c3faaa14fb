package tokens

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

// signer signs tokens as one key.
type signer struct {
	key *ecdsa.PrivateKey
	id  string
}

func newSigner(t *testing.T, id string) *signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &signer{key: key, id: id}
}

// sign makes a JWT that is good for an hour, but for what claims say.
func (s *signer) sign(t *testing.T, claims map[string]any) string {
	t.Helper()
	all := map[string]any{"sub": "canary", "iat": time.Now().Unix(), "exp": time.Now().Add(time.Hour).Unix(), "jti": rand.Text()}
	maps.Copy(all, claims)
	part := func(v any) string {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(raw)
	}
	text := part(map[string]string{"alg": "ES256", "typ": "JWT", "kid": s.id}) + "." + part(all)
	sum := sha256.Sum256([]byte(text))
	r, v, err := ecdsa.Sign(rand.Reader, s.key, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(append(r.FillBytes(make([]byte, 32)), v.FillBytes(make([]byte, 32))...))
}

// late is an HTTPS server whose address is known before it is there.
type late struct {
	handler http.Handler
	address string
	tls     *tls.Config
	ca      string // file
}

func newLate(t *testing.T, name string, handler http.Handler) *late {
	t.Helper()
	ca := pkitest.NewCA(t, name)
	files := pkitest.Issue(t, filepath.Join(t.TempDir(), name), ca, pki.Leaf{CommonName: name, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}, ca)
	config := pkitest.Load(t, files).ServerConfig(tls.NoClientCert)
	config.NextProtos = []string{"http/1.1"}
	return &late{handler: handler, address: fmt.Sprintf("127.0.0.1:%d", ports.Take(t)), tls: config, ca: files.CA}
}

func (l *late) url() string { return "https://" + l.address }

func (l *late) start(t *testing.T) {
	t.Helper()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: l.handler, TLSConfig: l.tls, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { server.Close() })
}

// issuer is an OpenID Connect provider.
type issuer struct {
	*late
	*signer
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{signer: newSigner(t, "oidc-key")}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]any{"issuer": i.url(), "jwks_uri": i.url() + "/keys", "id_token_signing_alg_values_supported": []string{"ES256"},
			"response_types_supported": []string{"id_token"}, "subject_types_supported": []string{"public"}, "authorization_endpoint": i.url()})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		public, err := i.key.PublicKey.Bytes()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		encode := base64.RawURLEncoding.EncodeToString
		answer(w, map[string]any{"keys": []any{map[string]string{"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": i.id,
			"x": encode(public[1:33]), "y": encode(public[33:])}}})
	})
	i.late = newLate(t, "issuer", mux)
	return i
}

// token is one for the hub, but for what claims say.
func (i *issuer) token(t *testing.T, claims map[string]any) string {
	all := map[string]any{"iss": i.url(), "aud": "hub"}
	maps.Copy(all, claims)
	return i.sign(t, all)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// webhook is an authentication webhook. It knows tokens that begin with live-.
type webhook struct {
	*late
	mode atomic.Pointer[string]
}

const (
	well    = "well"
	slow    = "slow"
	refuses = "refuses" // answers tokens that it does not know with 403
)

func newWebhook(t *testing.T) *webhook {
	w := &webhook{}
	w.late = newLate(t, "webhook", w)
	return w
}

func (w *webhook) set(mode string) { w.mode.Store(&mode) }

func (w *webhook) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	var review authenticationv1.TokenReview
	_ = json.NewDecoder(r.Body).Decode(&review)
	if strings.HasPrefix(review.Spec.Token, "live-") {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "canary"}}
	}
	switch mode := *w.mode.Load(); {
	case mode == slow:
		<-r.Context().Done()
		return
	case mode == refuses && !review.Status.Authenticated:
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusForbidden)
	}
	answer(rw, review)
}

// kubeconfig is for a kube-apiserver.
func (w *webhook) kubeconfig(t *testing.T) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["webhook"] = &clientcmdapi.Cluster{Server: w.url() + "/authenticate", CertificateAuthority: w.ca}
	config.AuthInfos["hub"] = &clientcmdapi.AuthInfo{}
	config.Contexts["webhook"] = &clientcmdapi.Context{Cluster: "webhook", AuthInfo: "hub"}
	config.CurrentContext = "webhook"
	file := filepath.Join(t.TempDir(), "webhook.kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}
