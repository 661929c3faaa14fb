package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// managedAPI answers for the kube-apiservers of many clusters, as far as agents and the rows of
// the table ask: a bearer token names the cluster. Nothing is checked, since nobody else
// reaches it.
type managedAPI struct {
	address string
	ca      []byte // PEM

	mu     sync.Mutex
	leases map[string]*coordinationv1.Lease
	leased []string // for the first time, since takeLeased
}

const (
	podsOfCluster = 2
	podColumns    = `[{"name":"Name","type":"string","format":"name","description":"","priority":0},{"name":"Ready","type":"string","format":"","description":"","priority":0},` +
		`{"name":"Status","type":"string","format":"","description":"","priority":0},{"name":"Restarts","type":"string","format":"","description":"","priority":0},` +
		`{"name":"Age","type":"string","format":"","description":"","priority":0}]`
	podResource = `{"resource":"pods","responseKind":{"group":"","version":"v1","kind":"Pod"},"scope":"Namespaced","singularResource":"pod","verbs":["get","list","watch"],"shortNames":["po"]}`
)

func serveManaged(ctx context.Context) (*managedAPI, error) {
	pair, err := pki.NewCA("managed clusters", time.Now(), 24*time.Hour)
	if err != nil {
		return nil, err
	}
	ca, err := pki.ParseCA(pair)
	if err != nil {
		return nil, err
	}
	serving, err := ca.Issue(pki.Leaf{CommonName: "kube-apiserver", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true, Validity: 24 * time.Hour}, time.Now())
	if err != nil {
		return nil, err
	}
	config, err := serverConfig(serving)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	m := &managedAPI{address: listener.Addr().String(), ca: ca.CertPEM(), leases: map[string]*coordinationv1.Lease{}}
	// Idle connections (measureConnections) are so before their handshake.
	server := &http.Server{Handler: m, TLSConfig: config, ReadHeaderTimeout: time.Hour}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return m, nil
}

// takeLeased returns the clusters whose Lease was renewed for the first time since it was last
// called.
func (m *managedAPI) takeLeased() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	leased := m.leased
	m.leased = nil
	return leased
}

func (m *managedAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	cluster := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	path := strings.Trim(r.URL.Path, "/")
	switch {
	case path == "version":
		answer(w, http.StatusOK, map[string]string{"major": "1", "minor": "36", "gitVersion": "v1.36.0", "platform": "linux/amd64"})
	case path == "api", path == "apis", path == "api/v1":
		m.discover(w, r, path)
	case strings.HasPrefix(path, "apis/coordination.k8s.io/v1/namespaces/"):
		m.lease(w, cluster)
	case path == "api/v1/pods", path == "api/v1/namespaces/default/pods":
		pods(w, r, cluster)
	default:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	}
}

// discover answers in both forms of discovery.
func (m *managedAPI) discover(w http.ResponseWriter, r *http.Request, path string) {
	if strings.Contains(r.Header.Get("Accept"), "as=APIGroupDiscoveryList") && path != "api/v1" {
		items := "[]"
		if path == "api" {
			items = `[{"metadata":{"name":""},"versions":[{"version":"v1","resources":[` + podResource + `],"freshness":"Current"}]}]`
		}
		w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		fmt.Fprintf(w, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":%s}`, items)
		return
	}
	switch path {
	case "api":
		answer(w, http.StatusOK, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case "apis":
		answer(w, http.StatusOK, metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}})
	default:
		answer(w, http.StatusOK, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1", APIResources: []metav1.APIResource{
			{Name: "pods", SingularName: "pod", Namespaced: true, Kind: "Pod", Verbs: metav1.Verbs{"get", "list", "watch"}, ShortNames: []string{"po"}}}})
	}
}

// lease is the addon's Lease, of which a cluster has one. Its content matters to nobody here.
func (m *managedAPI) lease(w http.ResponseWriter, cluster string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	lease := m.leases[cluster]
	if lease == nil {
		lease = &coordinationv1.Lease{TypeMeta: metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}, ObjectMeta: metav1.ObjectMeta{Name: "cluster-proxy"}}
		m.leases[cluster] = lease
		m.leased = append(m.leased, cluster)
	}
	answer(w, http.StatusOK, lease)
}

// pods answers a list, in the form that is asked for, or a watch in which nothing happens.
func pods(w http.ResponseWriter, r *http.Request, cluster string) {
	if r.URL.Query().Get("watch") != "" {
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		return
	}
	table := strings.Contains(r.Header.Get("Accept"), "as=Table")
	var items []string
	for i := range podsOfCluster {
		meta := fmt.Sprintf(`"metadata":{"name":"web-%d","namespace":"default","uid":"%s-%d","resourceVersion":"1000","creationTimestamp":"2026-11-22T03:00:00Z"}`, i, cluster, i)
		item := `{` + meta + `,"spec":{"containers":[{"name":"web","image":"web:1"}],"nodeName":"node-1"},"status":{"phase":"Running","podIP":"10.0.0.1"}}`
		if table {
			item = fmt.Sprintf(`{"cells":["web-%d","1/1","Running","0","5m"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",%s}}`, i, meta)
		}
		items = append(items, item)
	}
	w.Header().Set("Content-Type", "application/json")
	if table {
		fmt.Fprintf(w, `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1000"},"columnDefinitions":%s,"rows":[%s]}`, podColumns, strings.Join(items, ","))
		return
	}
	fmt.Fprintf(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1000"},"items":[%s]}`, strings.Join(items, ","))
}

func answer(w http.ResponseWriter, code int, object any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(object)
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	answer(w, int(code), metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Reason: reason, Code: code})
}
