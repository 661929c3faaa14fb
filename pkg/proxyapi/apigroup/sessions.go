package apigroup

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/replica"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
)

// SessionStorage shows and ends the sessions of all replicas. Nothing is stored.
type SessionStorage struct {
	Here *session.Registry
	// Peers is nil without other replicas.
	Peers *replica.Peers
}

var (
	_ rest.Scoper               = &SessionStorage{}
	_ rest.Getter               = &SessionStorage{}
	_ rest.Lister               = &SessionStorage{}
	_ rest.GracefulDeleter      = &SessionStorage{}
	_ rest.SingularNameProvider = &SessionStorage{}
)

func (s *SessionStorage) New() runtime.Object     { return &v1alpha1.Session{} }
func (s *SessionStorage) NewList() runtime.Object { return &v1alpha1.SessionList{} }
func (s *SessionStorage) Destroy()                {}
func (s *SessionStorage) NamespaceScoped() bool   { return false }
func (s *SessionStorage) GetSingularName() string { return "session" }

func noSession(name string) error {
	return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource(v1alpha1.Sessions).GroupResource(), name)
}

// unsure is the answer for a session that is nowhere, as far as is known.
func unsure(name string, missing []string) error {
	if len(missing) == 0 {
		return noSession(name)
	}
	return apierrors.NewServiceUnavailable(fmt.Sprintf("session %q is at no replica of the proxy API that answers: %s", name, strings.Join(missing, "; ")))
}

// Get finds a session at any replica.
func (s *SessionStorage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	object, _, err := s.find(ctx, name)
	if err != nil {
		return nil, err
	}
	return object, nil
}

// find returns a session and the replica that has it, which is nil for this one.
func (s *SessionStorage) find(ctx context.Context, name string) (*v1alpha1.Session, *replica.PeerAddress, error) {
	if !replica.SessionName.MatchString(name) {
		return nil, nil, noSession(name)
	}
	if one := s.Here.Get(name); one != nil {
		object := one.Object()
		return &object, nil, nil
	}
	items, at, missing := s.ask(ctx)
	for i := range items {
		if items[i].Name == name {
			from := at[name]
			return &items[i], &from, nil
		}
	}
	return nil, nil, unsure(name, missing)
}

// ask asks the other replicas.
func (s *SessionStorage) ask(ctx context.Context) (items []v1alpha1.Session, at map[string]replica.PeerAddress, missing []string) {
	if s.Peers == nil {
		return nil, nil, nil
	}
	return s.Peers.AskSessions(ctx)
}

// List lists the sessions of all replicas, the oldest first. A replica that does not answer
// is in a Warning.
func (s *SessionStorage) List(ctx context.Context, options *internalversion.ListOptions) (runtime.Object, error) {
	byLabel, byField := selectorsOf(options)
	all := s.Here.List()
	known := map[string]bool{}
	for i := range all {
		known[all[i].Name] = true
	}
	others, _, missing := s.ask(ctx)
	for _, other := range others {
		if !known[other.Name] { // a replica speaks for its own
			known[other.Name] = true
			all = append(all, other)
		}
	}
	for _, text := range missing {
		warning.AddWarning(ctx, "", "sessions may be missing: "+text)
	}
	list := &v1alpha1.SessionList{Items: []v1alpha1.Session{}}
	session.Sort(all)
	for _, one := range all {
		if byLabel.Matches(labels.Set(nil)) && byField.Matches(fields.Set{"metadata.name": one.Name}) {
			list.Items = append(list.Items, one)
		}
	}
	return list, nil
}

// Delete ends a session at the replica that has it.
func (s *SessionStorage) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	object, at, err := s.find(ctx, name)
	if err != nil {
		return nil, false, err
	}
	if p := options.Preconditions; p != nil && (p.UID != nil && *p.UID != object.UID || p.ResourceVersion != nil) {
		return nil, false, apierrors.NewConflict(v1alpha1.GroupVersion.WithResource(v1alpha1.Sessions).GroupResource(), name, fmt.Errorf("the session has UID %s and no resourceVersion", object.UID))
	}
	if validate != nil {
		if err := validate(ctx, object); err != nil {
			return nil, false, err
		}
	}
	audit.AddAuditAnnotations(ctx, scope.AnnotationPrefix+"session-user", object.Status.User, scope.AnnotationPrefix+"session", sessionText(&object.Status))
	if len(options.DryRun) > 0 {
		return object, true, nil
	}
	klog.FromContext(ctx).Info("Ending a session", "by", scope.UserOf(ctx).GetName(), "session", name, "user", object.Status.User, "kind", object.Status.Kind, "cluster", object.Status.Cluster, "target", object.Status.Target)
	ended, err := at == nil && s.Here.Finish(name) != nil, error(nil)
	if at != nil {
		ended, err = s.Peers.EndSession(ctx, *at, name)
	}
	switch {
	case err != nil:
		return nil, false, unsure(name, []string{session.Shown(err.Error())})
	case !ended:
		return nil, false, noSession(name) // it has ended meanwhile
	}
	return object, true, nil
}

// sessionText says what a session is, for audit events.
func sessionText(s *v1alpha1.SessionStatus) string {
	text := s.Kind
	for _, part := range []string{s.Cluster, s.View, s.Target} {
		if part != "" {
			text += " " + part
		}
	}
	return text
}

var sessionColumns = []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "Name of the session, by which it is ended"},
	{Name: "User", Type: "string", Description: "Name of the user on the hub"},
	{Name: "Cluster", Type: "string", Description: "The managed cluster, or @ and the FleetView of a watch"},
	{Name: "Kind", Type: "string", Description: "exec, attach, port-forward, connect, upgrade or view-watch"},
	{Name: "Target", Type: "string", Description: "Namespace, pod and container, or the Service, or what is watched"},
	{Name: "Since", Type: "string", Description: "How long the session is open"},
	{Name: "In", Type: "integer", Description: "Bytes that the user has sent"},
	{Name: "Out", Type: "integer", Description: "Bytes that were sent to the user"},
	{Name: "Replica", Type: "string", Description: "Pod of the proxy API that has the session"},
}

// ConvertToTable is what kubectl get shows.
func (s *SessionStorage) ConvertToTable(_ context.Context, object runtime.Object, options runtime.Object) (*metav1.Table, error) {
	table := newTable(sessionColumns, options)
	var items []v1alpha1.Session
	switch o := object.(type) {
	case *v1alpha1.Session:
		items = []v1alpha1.Session{*o}
	case *v1alpha1.SessionList:
		items = o.Items
	default:
		return nil, fmt.Errorf("making a table of %T: it is no session", object)
	}
	for i := range items {
		one := &items[i]
		user, cluster := one.Status.User, one.Status.Cluster
		if user == "" {
			user = "<unknown>"
		}
		if cluster == "" {
			cluster = "@" + one.Status.View
		}
		table.Rows = append(table.Rows, metav1.TableRow{Object: runtime.RawExtension{Object: one}, Cells: []any{one.Name, user, cluster, one.Status.Kind, one.Status.Target,
			duration.HumanDuration(time.Since(one.CreationTimestamp.Time)), one.Status.BytesIn, one.Status.BytesOut, one.Status.Replica}})
	}
	return table, nil
}
