package chain

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	cluster   = "cluster1"
	namespace = "addons"
	hubUser   = "jane"
)

// exposed is the list of Services, for both ends.
const exposed = "[{namespace: ns, service: db, protocol: tcp}, {namespace: ns, service: web, protocol: http}]"

// hubAPI is the hub's kube-apiserver, as far as the proxy API asks it. It knows
// one user, and lets everybody do everything but impersonate.
type hubAPI struct{ token string }

func startHubAPI(t *testing.T, dir, token string) (kubeconfig string) {
	t.Helper()
	server := httptest.NewServer(&hubAPI{token})
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return writeKubeconfig(t, filepath.Join(dir, "hub.kubeconfig"), &clientcmdapi.Cluster{Server: server.URL}, "of-the-proxy-api")
}

func writeKubeconfig(t *testing.T, file string, server *clientcmdapi.Cluster, token string) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["it"] = server
	config.AuthInfos["me"] = &clientcmdapi.AuthInfo{Token: token}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "me"}
	config.CurrentContext = "it"
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

func (a *hubAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := func(code int, object any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(object)
	}
	meta := metav1.ObjectMeta{Name: cluster, UID: "1", ResourceVersion: "1"}
	list := metav1.ListMeta{ResourceVersion: "1"}
	switch path := r.URL.Path; {
	case strings.HasSuffix(path, "/tokenreviews"):
		var review authenticationv1.TokenReview
		decode(r, &review)
		review.Status.Error = "invalid bearer token"
		if review.Spec.Token == a.token {
			review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: hubUser, Groups: []string{"devs"}}}
		}
		answer(http.StatusCreated, review)
	case strings.HasSuffix(path, "accessreviews"):
		var review authorizationv1.SubjectAccessReview
		decode(r, &review)
		wanted := review.Spec.ResourceAttributes
		review.Status.Allowed = wanted == nil || !strings.HasPrefix(wanted.Verb, "impersonate") || wanted.Name == canary(canaries["what the user wants to be taken for"])
		answer(http.StatusCreated, review)
	case r.URL.Query().Has("sendInitialEvents"):
		answer(http.StatusUnprocessableEntity, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 422, Reason: metav1.StatusReasonInvalid})
	case r.URL.Query().Has("watch"):
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	case strings.HasSuffix(path, "/managedclusters"):
		answer(http.StatusOK, clusterv1.ManagedClusterList{TypeMeta: metav1.TypeMeta{APIVersion: "cluster.open-cluster-management.io/v1", Kind: "ManagedClusterList"}, ListMeta: list,
			Items: []clusterv1.ManagedCluster{{ObjectMeta: meta, Spec: clusterv1.ManagedClusterSpec{HubAcceptsClient: true}}}})
	case strings.HasSuffix(path, "/managedclusteraddons"):
		meta.Name, meta.Namespace = identity.AddonName, cluster
		answer(http.StatusOK, addonv1alpha1.ManagedClusterAddOnList{TypeMeta: metav1.TypeMeta{APIVersion: "addon.open-cluster-management.io/v1alpha1", Kind: "ManagedClusterAddOnList"}, ListMeta: list,
			Items: []addonv1alpha1.ManagedClusterAddOn{{ObjectMeta: meta}}})
	case strings.HasSuffix(path, "/"+namespace+"/configmaps"):
		meta.Name, meta.Namespace = "cluster-proxy-exposed-services", namespace
		answer(http.StatusOK, corev1.ConfigMapList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMapList"}, ListMeta: list,
			Items: []corev1.ConfigMap{{ObjectMeta: meta, Data: map[string]string{"a": exposed}}}})
	default:
		answer(http.StatusNotFound, metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: 404, Reason: metav1.StatusReasonNotFound})
	}
}

// decode reads what a client sends in the format of its choice.
func decode(r *http.Request, into runtime.Object) {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		_, _, _ = scheme.Codecs.UniversalDeserializer().Decode(body, nil, into)
	}
}

// writeExposed is the agent's copy of the list of Services.
func writeExposed(t *testing.T, dir string) string {
	t.Helper()
	folder := filepath.Join(dir, "exposed")
	if err := os.Mkdir(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(folder, "a"), []byte(exposed), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// startManagedAPI starts the managed cluster's kube-apiserver. Connections that do not
// begin as TLS does are given to the test: bytes of whoever has asked for a connection.
func startManagedAPI(t *testing.T, dir string, handler http.Handler) (kubeconfig string, raw <-chan net.Conn) {
	t.Helper()
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = true
	split := &splitListener{Listener: server.Listener, tls: make(chan net.Conn), raw: make(chan net.Conn, 10), closed: make(chan struct{})}
	server.Listener = split
	go split.serve()
	server.StartTLS()
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	file := writeKubeconfig(t, filepath.Join(dir, "managed.kubeconfig"), &clientcmdapi.Cluster{Server: server.URL, CertificateAuthorityData: pemOf(server)}, "of-the-agent")
	return file, split.raw
}

// splitListener accepts TLS, and gives away what is none.
type splitListener struct {
	net.Listener
	tls, raw chan net.Conn
	once     sync.Once
	closed   chan struct{}
}

func (l *splitListener) serve() {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return
		}
		go func() {
			first := make([]byte, 1)
			if _, err := io.ReadFull(conn, first); err != nil {
				conn.Close()
				return
			}
			to, what := l.raw, conn
			if first[0] == 0x16 { // a handshake record
				to, what = l.tls, &begun{conn, first}
			}
			select {
			case to <- what:
			case <-l.closed:
				conn.Close()
			}
		}()
	}
}

func (l *splitListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.tls:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *splitListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// begun is a connection of which the beginning was read.
type begun struct {
	net.Conn
	read []byte
}

func (c *begun) Read(p []byte) (int, error) {
	if len(c.read) == 0 {
		return c.Conn.Read(p)
	}
	n := copy(p, c.read)
	c.read = c.read[n:]
	return n, nil
}
