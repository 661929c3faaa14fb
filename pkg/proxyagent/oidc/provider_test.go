package oidc

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// issuer is an OpenID Connect provider.
type issuer struct {
	*httptest.Server
	key *rsa.PrivateKey
	// asked gets a channel for each discovery, which waits until it is closed; nil for no wait.
	asked atomic.Pointer[chan chan struct{}]
}

func newIssuer(t *testing.T) *issuer {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{key: key}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if asked := i.asked.Load(); asked != nil {
			answer := make(chan struct{})
			*asked <- answer
			<-answer
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": i.URL, "jwks_uri": i.URL + "/keys"})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: &key.PublicKey, KeyID: "1", Algorithm: "RS256", Use: "sig"}}})
	})
	i.Server = httptest.NewTLSServer(mux)
	t.Cleanup(i.Close)
	return i
}

func (i *issuer) token(t *testing.T, key *rsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "1"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{"iss": i.URL, "aud": "kubectl", "sub": "jane", "exp": time.Now().Add(time.Hour).Unix(), "tenant": "a", "groups": []string{"devs"}}
	for name, value := range claims {
		all[name] = value
	}
	payload, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func (i *issuer) options(t *testing.T) *Options {
	t.Helper()
	o := NewOptions()
	o.IssuerURL, o.ClientID, o.UsernamePrefix = i.URL, "kubectl", "oidc:"
	o.GroupsClaim, o.RequiredClaims = "groups", map[string]string{"tenant": "a"}
	o.CAFile = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(o.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: i.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := o.Validate(); err != nil {
		t.Fatal(err)
	}
	return o
}

func run(t *testing.T, o *Options) *Provider {
	t.Helper()
	p := New(o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return p
}

// wait waits until the provider was found.
func wait(t *testing.T, p *Provider, good string) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		if _, ok, _ := p.AuthenticateToken(t.Context(), good); ok {
			return
		}
		select {
		case <-deadline:
			t.Fatal("the provider was not found")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func TestTokens(t *testing.T) {
	i := newIssuer(t)
	p := run(t, i.options(t))
	otherKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := i.token(t, i.key, nil)
	wait(t, p, good)
	for name, test := range map[string]struct {
		token  string
		want   string
		groups []string
	}{
		"good":                  {good, "oidc:jane", []string{"devs"}},
		"another key":           {token: i.token(t, otherKey, nil)},
		"another issuer":        {token: i.token(t, i.key, map[string]any{"iss": "https://example.org"})},
		"another client":        {token: i.token(t, i.key, map[string]any{"aud": "other"})},
		"expired":               {token: i.token(t, i.key, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()})},
		"another tenant":        {token: i.token(t, i.key, map[string]any{"tenant": "b"})},
		"a reserved group":      {token: i.token(t, i.key, map[string]any{"groups": []string{"devs", "system:masters"}})},
		"garbage":               {token: "a.b.c"},
		"no token":              {},
		"a service account's":   {token: "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2ln"},
		"the algorithm of none": {token: "eyJhbGciOiJub25lIn0." + strings.Split(good, ".")[1] + "."},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodGet, "/api", nil)
			if test.token != "" {
				r.Header.Set("Authorization", "Bearer "+test.token)
			}
			response, ok, _ := p.AuthenticateRequest(r)
			if ok != (test.want != "") {
				t.Fatalf("known: %v, want %q", ok, test.want)
			}
			if !ok {
				if test.token != "" && r.Header.Get("Authorization") != "Bearer "+test.token {
					t.Error("a token that was not accepted was taken off the request")
				}
				return
			}
			if got := response.User; got.GetName() != test.want || !slices.Equal(got.GetGroups(), test.groups) {
				t.Errorf("%q in %q, want %q in %q", got.GetName(), got.GetGroups(), test.want, test.groups)
			}
			if r.Header.Get("Authorization") != "" {
				t.Error("the token was left on the request")
			}
		})
	}
}

// TestNewCA has the CA's file change: users are known all the while, though the provider takes
// its time to answer.
func TestNewCA(t *testing.T) {
	i := newIssuer(t)
	o := i.options(t)
	p := run(t, o)
	good := i.token(t, i.key, nil)
	wait(t, p, good)
	content, err := os.ReadFile(o.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	known := func(when string) {
		t.Helper()
		if _, ok, err := p.AuthenticateToken(t.Context(), good); !ok {
			t.Errorf("%s, the user is not known: %v", when, err)
		}
	}
	asked := make(chan chan struct{})
	i.asked.Store(&asked)
	before, used := p.current.Load(), make(chan error, 1)
	go func() {
		stop, err := p.use(t.Context(), append(content, '\n'))
		if err == nil {
			t.Cleanup(stop)
		}
		used <- err
	}()
	answer := <-asked
	known("while the provider does not answer")
	i.asked.Store(nil)
	close(answer)
	if err := <-used; err != nil {
		t.Error(err)
	}
	known("with the new CA")
	if p.current.Load() == before {
		t.Error("the new CA is not used")
	}
}

// Without a prefix a provider could name the control plane.
func TestReservedUser(t *testing.T) {
	i := newIssuer(t)
	o := i.options(t)
	o.UsernamePrefix = "-"
	p := run(t, o)
	wait(t, p, i.token(t, i.key, nil))
	if _, ok, _ := p.AuthenticateToken(t.Context(), i.token(t, i.key, map[string]any{"sub": "system:admin"})); ok {
		t.Error("became system:admin")
	}
}

func TestValidate(t *testing.T) {
	valid := func() *Options {
		o := NewOptions()
		o.IssuerURL, o.ClientID = "https://issuer.example.org", "kubectl"
		return o
	}
	if got := valid().usernamePrefix(); got != "https://issuer.example.org#" {
		t.Errorf("prefix %q, want the issuer and #", got)
	}
	for want, change := range map[string]func(o *Options){
		"":                              func(*Options) {},
		"must be set together":          func(o *Options) { o.ClientID = "" },
		"https URL":                     func(o *Options) { o.IssuerURL = "http://a" },
		"--oidc-username-claim":         func(o *Options) { o.UsernameClaim = "" },
		"--oidc-groups-prefix":          func(o *Options) { o.GroupsPrefix = "a" },
		"--oidc-reserved-name-prefixes": func(o *Options) { o.ReservedNamePrefixes = []string{""} },
		"--oidc-signing-algs":           func(o *Options) { o.SigningAlgs = []string{"none"} },
	} {
		o := valid()
		change(o)
		if err := o.Validate(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := NewOptions().Validate(); err != nil {
		t.Error(err)
	}
}
