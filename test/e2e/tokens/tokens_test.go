// Package tokens has a real kube-apiserver, as hub, decide about tokens in every
// way in which it can fail to, and looks which of them a managed cluster gets to
// see: those that nobody on the hub can have issued, and no others.
package tokens

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel/tunneltest"
	"open-cluster-management.io/cluster-proxy/test/lab"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

const (
	cluster = "cluster1"
	// serviceAccounts is the issuer of every lab's kube-apiserver.
	serviceAccounts = "https://kubernetes.default.svc"
	testTimeout     = 2 * time.Minute
)

// scene is a hub, a proxy API, and a managed cluster that notes what it is sent.
type scene struct {
	t             *testing.T
	dir           string
	hub           *lab.ControlPlane
	client        *kubernetes.Clientset
	issuer        *issuer
	webhook       *webhook
	hubCA, agents *pki.CA
	tunnels       *tunneltest.Hub

	mu   sync.Mutex
	seen map[string]bool // values of Authorization
}

func start(t *testing.T) *scene {
	t.Helper()
	s := &scene{t: t, dir: t.TempDir(), issuer: newIssuer(t), webhook: newWebhook(t), hubCA: pkitest.NewCA(t, "hub"), agents: pkitest.NewCA(t, "agents"), seen: map[string]bool{}}
	s.webhook.set(slow)
	hub, err := lab.StartControlPlane(t.Context(), filepath.Join(s.dir, "hub"), os.Stderr,
		"--authentication-token-webhook-config-file="+s.webhook.kubeconfig(t), "--authentication-token-webhook-version=v1", "--authentication-token-webhook-cache-ttl=0s",
		"--oidc-issuer-url="+s.issuer.url(), "--oidc-client-id=hub", "--oidc-ca-file="+s.issuer.ca, "--oidc-signing-algs=ES256", "--oidc-username-prefix=-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(hub.Stop)
	s.hub = hub
	if s.client, err = kubernetes.NewForConfig(hub.RESTConfig()); err != nil {
		t.Fatal(err)
	}
	s.makeCluster()
	s.makeTunnels()
	return s
}

// eventually waits until f has no error.
func (s *scene) eventually(what string, f func() error) {
	s.t.Helper()
	wait.Poll{Every: 100 * time.Millisecond, For: testTimeout}.Success(s.t, what, f)
}

// makeCluster makes a ManagedCluster with the addon.
func (s *scene) makeCluster() {
	s.t.Helper()
	client, err := dynamic.NewForConfig(s.hub.RESTConfig())
	if err != nil {
		s.t.Fatal(err)
	}
	create := func(gvr schema.GroupVersionResource, namespace string, object map[string]any) {
		s.t.Helper()
		s.eventually(gvr.Resource, func() error {
			_, err := client.Resource(gvr).Namespace(namespace).Create(s.t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
			return err
		})
	}
	definitions, err := s.hub.CRDs(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, pattern := range []string{"*managedclusters.crd.yaml", "*managedclusteraddons.crd.yaml"} {
		files, _ := filepath.Glob(filepath.Join(definitions, pattern))
		if len(files) != 1 {
			s.t.Fatalf("%q are %d files, want 1", pattern, len(files))
		}
		raw, err := os.ReadFile(files[0])
		if err != nil {
			s.t.Fatal(err)
		}
		var crd map[string]any
		if err := yaml.Unmarshal(raw, &crd); err != nil {
			s.t.Fatal(err)
		}
		create(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "", crd)
	}
	if _, err := s.client.CoreV1().Namespaces().Create(s.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	create(schema.GroupVersionResource{Group: "cluster.open-cluster-management.io", Version: "v1", Resource: "managedclusters"}, "", map[string]any{
		"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": map[string]any{"name": cluster}, "spec": map[string]any{"hubAcceptsClient": true}})
	create(schema.GroupVersionResource{Group: "addon.open-cluster-management.io", Version: "v1alpha1", Resource: "managedclusteraddons"}, cluster, map[string]any{
		"apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterAddOn", "metadata": map[string]any{"name": identity.AddonName, "namespace": cluster}, "spec": map[string]any{}})
}

// makeTunnels makes an agent that notes the credentials that it sees.
func (s *scene) makeTunnels() {
	loopback := pki.Leaf{CommonName: "server", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}
	config := pkitest.NewReloader(s.t, s.hubCA, loopback, s.hubCA).ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2"}
	s.tunnels = tunneltest.StartTLS(s.t, config)
	agent := pki.Leaf{CommonName: identity.AgentCommonName(cluster), Organizations: identity.AgentOrganizations(cluster),
		DNSNames: []string{identity.HandlerHost(cluster)}, Server: true, Client: true}
	config = pkitest.NewReloader(s.t, s.agents, agent, s.hubCA).ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	server := &http.Server{TLSConfig: config, ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.seen[r.Header.Get("Authorization")] = true
	})}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	s.t.Cleanup(func() { server.Close() })
	s.tunnels.Forward(net.JoinHostPort(identity.HandlerHost(cluster), identity.HandlerPort), listener.Addr().String())
}

// proxyAPI starts a proxy API and returns what asks it for the cluster with a token.
func (s *scene) proxyAPI(audiences ...string) (ask func(token string) int) {
	s.t.Helper()
	own := pkitest.Issue(s.t, filepath.Join(s.t.TempDir(), "client"), s.hubCA, pki.Leaf{CommonName: string(identity.RoleProxyAPI), Client: true}, s.hubCA)
	serving := pkitest.Issue(s.t, filepath.Join(s.t.TempDir(), "proxy-api"), s.hubCA, pki.Leaf{CommonName: "proxy-api", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}, s.hubCA)
	agentCA := filepath.Join(s.t.TempDir(), "agents.crt")
	if err := os.WriteFile(agentCA, s.agents.CertPEM(), 0o600); err != nil {
		s.t.Fatal(err)
	}
	o := proxyapi.NewOptions()
	o.ProxyServer, o.ProxyCACert, o.ProxyCert, o.ProxyKey, o.AgentCACert = s.tunnels.Address(), own.CA, own.Cert, own.Key, agentCA
	o.ServerCert, o.ServerKey, o.ServerBindAddress, o.ServerPort = serving.Cert, serving.Key, "127.0.0.1", ports.Take(s.t)
	o.HealthBindAddress, o.HealthPort, o.Kubeconfig, o.Namespace = "127.0.0.1", ports.Take(s.t), s.hub.KubeconfigPath, "default"
	o.MinDrainDuration, o.GracefulShutdownTimeout, o.Audiences = 0, time.Second, audiences
	server, err := proxyapi.New(o)
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Run(ctx) }()
	transport := &http.Transport{TLSClientConfig: pkitest.Load(s.t, pki.Files{CA: own.CA}).ClientConfig("")}
	s.t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			s.t.Errorf("the proxy API: %v", err)
		}
		transport.CloseIdleConnections()
	})
	client := &http.Client{Transport: transport}
	url := fmt.Sprintf("https://127.0.0.1:%d/", o.ServerPort)
	s.eventually("the proxy API", func() error {
		resp, err := client.Get(url + "readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		// The proxy server here speaks konnectivity's protocol only, as upstream's
		// does, and a proxy API waits beside those.
		if strings.Count(string(body), "[-]") != strings.Count(string(body), "[-]proxy-server") {
			err = fmt.Errorf("it answers %d: %s", resp.StatusCode, body)
		}
		return err
	})
	return func(token string) int {
		r, err := http.NewRequest(http.MethodGet, url+cluster+"/version", nil)
		if err != nil {
			s.t.Error(err)
			return 0
		}
		r.Header.Set("Authorization", "Bearer "+token)
		resp, err := client.Do(r)
		if err != nil {
			s.t.Error(err)
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
}

// serviceAccountToken is one of the hub, of a service account of its own.
func (s *scene) serviceAccountToken(name string, audiences ...string) string {
	s.t.Helper()
	accounts := s.client.CoreV1().ServiceAccounts("default")
	if _, err := accounts.Create(s.t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		s.t.Fatal(err)
	}
	request, err := accounts.CreateToken(s.t.Context(), name, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return request.Status.Token
}

// TestTokens sends tokens of the hub and of others while parts of the hub are
// not there. 200 means that the cluster got the token, 403 that the hub knew it.
func TestTokens(t *testing.T) {
	s := start(t)
	foreign := newSigner(t, "key-of-a-cluster")
	expect := func(ask func(string) int, name, token string, want int) {
		t.Helper()
		if got := ask(token); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
	another := func() string { return foreign.sign(t, map[string]any{"iss": serviceAccounts, "aud": serviceAccounts}) }
	wanted := map[string]bool{}
	passed := func(ask func(string) int, name, token string) {
		t.Helper()
		wanted["Bearer "+token] = true
		expect(ask, name, token, http.StatusOK)
	}
	ask := s.proxyAPI()

	expect(ask, "no webhook: one that it knows", "live-1", 503)
	expect(ask, "no webhook: an unknown one", "unknown-1", 503)
	expect(ask, "no webhook: another cluster's", another(), 503)
	expect(ask, "no webhook, no issuer: OIDC", s.issuer.token(t, nil), 503)

	s.webhook.start(t)
	expect(ask, "slow webhook: one that it knows", "live-2", 503)
	s.webhook.set(well)
	expect(ask, "webhook: one that it knows", "live-3", 403)
	passed(ask, "webhook: an unknown one", "unknown-2")
	passed(ask, "webhook: another cluster's", another())
	expect(ask, "webhook, no issuer: OIDC", s.issuer.token(t, nil), 503)
	expect(ask, "a bootstrap token", "abcdef.0123456789abcdef", 401)
	s.webhook.set(refuses)
	expect(ask, "webhook that refuses: an unknown one", "unknown-3", 503)
	s.webhook.set(well)

	s.issuer.start(t)
	s.eventually("the hub to know the issuer", func() error {
		if got := ask(s.issuer.token(t, nil)); got != 403 {
			return fmt.Errorf("%d for an OIDC token", got)
		}
		return nil
	})
	expect(ask, "OIDC, expired", s.issuer.token(t, map[string]any{"exp": time.Now().Add(-time.Hour).Unix()}), 401)
	expect(ask, "OIDC, another audience", s.issuer.token(t, map[string]any{"aud": "vault"}), 401)
	forged := newSigner(t, s.issuer.id).sign(t, map[string]any{"iss": s.issuer.url(), "aud": "hub"})
	expect(ask, "OIDC, another key", forged, 503)

	expect(ask, "service account", s.serviceAccountToken("good"), 403)
	expect(ask, "service account, another audience", s.serviceAccountToken("vault", "vault"), 401)
	expect(ask, "service account, the proxy API alone", s.serviceAccountToken("for-proxy-api", identity.ProxyAPIAudience), 403)
	gone := s.serviceAccountToken("gone")
	if err := s.client.CoreV1().ServiceAccounts("default").Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventually("the hub to forget a service account", func() error {
		if got := ask(gone); got != 401 {
			return fmt.Errorf("%d for a token of one that is gone", got)
		}
		return nil
	})

	elsewhere := s.proxyAPI("elsewhere")
	expect(elsewhere, "--api-audiences: OIDC", s.issuer.token(t, nil), 401)
	expect(elsewhere, "--api-audiences: one that the webhook knows", "live-4", 401)
	expect(elsewhere, "--api-audiences: service account", s.serviceAccountToken("other"), 401)
	expect(elsewhere, "--api-audiences: service account for it", s.serviceAccountToken("for-elsewhere", "elsewhere"), 403)
	passed(elsewhere, "--api-audiences: another cluster's", another())

	s.restart(ask)
	s.mu.Lock()
	defer s.mu.Unlock()
	for credential := range s.seen {
		if !wanted[credential] {
			t.Errorf("the cluster got to see %.80s", credential)
		}
	}
	for credential := range wanted {
		if !s.seen[credential] {
			t.Errorf("the cluster did not see %.80s", credential)
		}
	}
}

// restart restarts the hub's kube-apiserver while good tokens come that it has
// not seen before.
func (s *scene) restart(ask func(string) int) {
	s.t.Helper()
	var senders sync.WaitGroup
	stop := make(chan struct{})
	codes := map[int]int{}
	account := s.serviceAccountToken("restarted")
	senders.Go(func() {
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for i := 0; ; i++ {
			for _, token := range []string{fmt.Sprint("live-restart-", i), s.issuer.token(s.t, nil), account} {
				codes[ask(token)]++
			}
			select {
			case <-stop:
				return
			case <-tick.C:
			}
		}
	})
	if err := s.hub.Restart(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("the hub to know the issuer again", func() error {
		if got := ask(s.issuer.token(s.t, nil)); got != 403 {
			return fmt.Errorf("%d for an OIDC token", got)
		}
		return nil
	})
	close(stop)
	senders.Wait()
	s.t.Logf("answers while the hub restarted: %v", codes)
	var odd []string
	for code := range codes {
		if code != 401 && code != 403 && code != 429 && code != 503 {
			odd = append(odd, fmt.Sprint(code))
		}
	}
	if len(odd) > 0 {
		s.t.Errorf("answers %s while the hub restarted", strings.Join(odd, " "))
	}
}
