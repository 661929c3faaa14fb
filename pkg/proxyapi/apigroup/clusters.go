package apigroup

import (
	"context"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authz"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/relay"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// ClusterAPI is what the kinds of the aggregated API are made of.
type ClusterAPI struct {
	Clusters   scope.Clusters
	Authorizer *authz.Authorizer
	Agents     *agentclient.Client
	Latencies  *relay.Latencies
	// Exposed returns the Services that clusters expose.
	Exposed func() agentapi.ExposedServices
	// Permit asks the AccessPolicies about a request to a cluster.
	Permit func(ctx context.Context, rs *scope.Scope) error
}

// clusterStorage shows the clusters that a caller may reach. Nothing is stored.
type clusterStorage struct{ *ClusterAPI }

var (
	_ rest.Scoper               = &clusterStorage{}
	_ rest.Getter               = &clusterStorage{}
	_ rest.Lister               = &clusterStorage{}
	_ rest.SingularNameProvider = &clusterStorage{}
)

func (s *clusterStorage) New() runtime.Object     { return &v1alpha1.Cluster{} }
func (s *clusterStorage) NewList() runtime.Object { return &v1alpha1.ClusterList{} }
func (s *clusterStorage) Destroy()                {}
func (s *clusterStorage) NamespaceScoped() bool   { return false }
func (s *clusterStorage) GetSingularName() string { return "cluster" }

// Get finds a cluster, if the caller may reach it.
func (s *clusterStorage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	if err := s.started(); err != nil {
		return nil, err
	}
	if s.Clusters.Served(name) != nil || !s.Authorizer.MayReach(ctx, scope.UserOf(ctx), mayGet, name) {
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource).GroupResource(), name)
	}
	cluster := s.describe(name)
	return &cluster, nil
}

// mayGet is the right without which a cluster is not shown.
var mayGet = authz.Right{Verb: "get"}

// started is an error until it is known which clusters there are.
func (a *ClusterAPI) started() error {
	if err := a.Clusters.Synced(); err != nil {
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the proxy API is starting: %v", err))
	}
	return nil
}

// List lists the clusters that the caller may reach, by name.
func (s *clusterStorage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	items, err := s.reachable(ctx, options, mayGet)
	return &v1alpha1.ClusterList{Items: items}, err
}

// reachable are the clusters for which the caller has all rights, by name.
func (a *ClusterAPI) reachable(ctx context.Context, options *internalversion.ListOptions, rights ...authz.Right) ([]v1alpha1.Cluster, error) {
	if err := a.started(); err != nil {
		return nil, err
	}
	byLabel, byField := selectorsOf(options)
	names, _, err := a.Authorizer.Reachable(ctx, scope.UserOf(ctx), rights, a.Clusters.Names())
	if err != nil {
		return nil, scope.NotAsked(err, "which clusters you may reach")
	}
	items := []v1alpha1.Cluster{}
	for _, name := range names {
		if a.Clusters.Served(name) != nil {
			continue
		}
		cluster := a.describe(name)
		if byLabel.Matches(labels.Set(cluster.Labels)) && byField.Matches(fields.Set{"metadata.name": name}) {
			items = append(items, cluster)
		}
	}
	return items, nil
}

// selectorsOf returns the selectors of a list. A selector that is missing selects everything.
func selectorsOf(options *internalversion.ListOptions) (labels.Selector, fields.Selector) {
	byLabel, byField := labels.Everything(), fields.Everything()
	if options != nil && options.LabelSelector != nil {
		byLabel = options.LabelSelector
	}
	if options != nil && options.FieldSelector != nil {
		byField = options.FieldSelector
	}
	return byLabel, byField
}

// describe says what this replica knows of a cluster.
func (a *ClusterAPI) describe(name string) v1alpha1.Cluster {
	cluster := a.Clusters.Describe(name)
	cluster.Status.Tunnels = int32(min(a.Agents.Connections(name), 1<<20))
	latency, requests := a.Latencies.Of(name)
	cluster.Status.Requests, cluster.Status.CountedSince = requests, &metav1.MicroTime{Time: a.Latencies.Since}
	if latency > 0 {
		cluster.Status.Latency = &metav1.Duration{Duration: latency.Round(10 * time.Microsecond)}
	}
	return cluster
}

var columns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Name of the ManagedCluster"},
	{Name: "Available", Type: "string", Description: "Condition Available of the cluster's ManagedClusterAddOn"},
	{Name: "Latency", Type: "string", Description: "Moving average of the time to the header of an answer"},
	{Name: "Version", Type: "string", Description: "Version of Kubernetes on the cluster"},
	{Name: "Last Seen", Type: "string", Description: "How long ago the cluster was last known to be reachable"},
	{Name: "Reason", Type: "string", Priority: 1, Description: "Why the cluster is not available"},
	{Name: "Connections", Type: "integer", Priority: 1, Description: "Connections through the tunnel that the replica which answers has open; 0 says nothing of the cluster"},
}

// ConvertToTable is what kubectl get shows.
func (s *clusterStorage) ConvertToTable(_ context.Context, object runtime.Object, options runtime.Object) (*metav1.Table, error) {
	table := newTable(columns, options)
	var items []v1alpha1.Cluster
	switch o := object.(type) {
	case *v1alpha1.Cluster:
		items = []v1alpha1.Cluster{*o}
	case *v1alpha1.ClusterList:
		items = o.Items
	default:
		return nil, fmt.Errorf("making a table of %T: it is no cluster", object)
	}
	now := time.Now()
	for i := range items {
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells(&items[i], now), Object: runtime.RawExtension{Object: &items[i]}})
	}
	return table, nil
}

func cells(c *v1alpha1.Cluster, now time.Time) []any {
	latency, seen := "<none>", "<unknown>"
	if c.Status.Latency != nil {
		latency = c.Status.Latency.Duration.Round(100 * time.Microsecond).String()
	}
	if c.Status.LastSeen != nil {
		seen = duration.HumanDuration(now.Sub(c.Status.LastSeen.Time))
	}
	return []any{c.Name, string(c.Status.Available), latency, c.Status.Version, seen, c.Status.Reason, c.Status.Tunnels}
}

var everyMethod = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodHead, http.MethodOptions}

// listed is in discovery and OpenAPI, and answers nothing: what it stands for
// is served before requests come here, or is a right only.
type listed struct {
	name    string
	methods []string
	// kind is that of what it is below.
	kind runtime.Object
}

var _ rest.Connecter = &listed{}

func (l *listed) New() runtime.Object                               { return l.kind.DeepCopyObject() }
func (l *listed) Destroy()                                          {}
func (l *listed) ConnectMethods() []string                          { return l.methods }
func (l *listed) NewConnectOptions() (runtime.Object, bool, string) { return nil, false, "" }
func (l *listed) Connect(context.Context, string, runtime.Object, rest.Responder) (http.Handler, error) {
	return nil, apierrors.NewBadRequest(fmt.Sprintf("clusters/<name>/%s is not served by this path: the cluster's API is below clusters/<name>/%s/, without percent-encoding", l.name, v1alpha1.ProxySubresource))
}

// newTable is an empty Table.
func newTable(columns []metav1.TableColumnDefinition, options runtime.Object) *metav1.Table {
	table := &metav1.Table{}
	if o, ok := options.(*metav1.TableOptions); !ok || !o.NoHeaders {
		table.ColumnDefinitions = columns
	}
	return table
}

func ageOf(meta metav1.ObjectMeta) string {
	if meta.CreationTimestamp.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(meta.CreationTimestamp.Time))
}
