package filter

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// terms are those of the Service that a request is for.
func (f *Filters) terms(rs *scope.Scope) agentapi.ServiceTerms {
	return f.Services.terms(rs.Target.Cluster, f.Clusters.ClusterSet(rs.Target.Cluster), rs.Target.Service)
}

// mayBeAnonymous reports whether a request without a credential may go on.
func (f *Filters) mayBeAnonymous(rs *scope.Scope) bool {
	return f.AllowAnonymous || rs.Target.ForService() && f.terms(rs).Anonymous
}

// admitToService decides about a request for a Service, and about what the Service
// gets to see as Authorization.
func (f *Filters) admitToService(rs *scope.Scope, r *http.Request) error {
	s, terms := rs.Target.Service, f.terms(rs)
	if rs.Anonymous() && !terms.Anonymous {
		return status.New(http.StatusUnauthorized, "Services are not for anonymous users: send a token")
	}
	if !terms.Exposed {
		return status.New(http.StatusForbidden, fmt.Sprintf("Service %s/%s is not in the exposed services allowlist for this cluster: add it to the value exposedServices of the hub's chart", s.Namespace, s.Service))
	}
	logins := r.Header[agentapi.ServiceAuthorization]
	switch {
	case len(logins) == 0:
		return nil
	case !terms.ForwardAuthorization:
		return status.New(http.StatusForbidden, fmt.Sprintf("logins are not forwarded to Service %s/%s: set forwardAuthorization in its entry of the value exposedServices of the hub's chart", s.Namespace, s.Service))
	case len(logins) > 1:
		return status.New(http.StatusBadRequest, "the request has more than one "+agentapi.ServiceAuthorization+" header: send one")
	}
	if err := f.Authenticator.CheckServiceLogin(r, logins[0]); err != nil {
		return err
	}
	rs.Login = logins[0]
	return nil
}

// allowlist is the list of Services that clusters expose, from a ConfigMap in
// upstream's form. Without a list nothing is exposed; an entry with a mistake is left
// out, and a list that cannot be read leaves the last good one in force.
type allowlist struct {
	informer cache.SharedIndexInformer
	entries  atomic.Pointer[agentapi.ExposedServices]
}

// NewAllowlist reads the allowlist from a ConfigMap of the hub.
func NewAllowlist(hub kubernetes.Interface, namespace, name string) (*allowlist, error) {
	l := &allowlist{informer: coreinformers.NewFilteredConfigMapInformer(hub, namespace, 0, nil, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
	})}
	_, err := l.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { l.set(obj) },
		UpdateFunc: func(_, obj any) { l.set(obj) },
		DeleteFunc: func(any) { l.entries.Store(nil) },
	})
	if err != nil {
		return nil, fmt.Errorf("preparing the watch of exposed Services: %w", err)
	}
	return l, nil
}

// Run watches until ctx is done.
func (l *allowlist) Run(ctx context.Context) error {
	l.informer.RunWithContext(ctx)
	return nil
}

func (l *allowlist) set(obj any) {
	configMap, ok := obj.(*corev1.ConfigMap)
	if !ok {
		return
	}
	entries, leftOut, err := agentapi.ParseExposedServices(configMap.Data)
	if wrong := errors.Join(leftOut, err); wrong != nil {
		klog.Background().Error(wrong, "Failed to read all of the exposed Services: a list that cannot be read leaves the one before it in force", "configMap", configMap.Namespace+"/"+configMap.Name)
	}
	if err == nil {
		l.entries.Store(&entries)
	}
}

// Entries are all of the list.
func (l *allowlist) Entries() agentapi.ExposedServices {
	if entries := l.entries.Load(); entries != nil {
		return *entries
	}
	return nil
}

// terms says how a Service of a cluster may be asked for. A request that leaves the
// port out is for entries that do.
func (l *allowlist) terms(cluster, set string, s agentapi.Service) agentapi.ServiceTerms {
	return l.Entries().Terms(cluster, set, s)
}
