package scope

import (
	"context"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/accesspolicy"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	karmadav1alpha1 "open-cluster-management.io/cluster-proxy/pkg/apis/karmada/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authz"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Kind is what a request is for.
type Kind int

const (
	// noScope is refused by every filter.
	None Kind = iota
	// ownScope is the proxy API itself.
	Own
	// clusterScope is one cluster.
	Cluster
	// viewScope is a fleet view.
	View
)

// ErrNoScope is the error of a request that is for nothing: a bug.
var ErrNoScope = status.New(http.StatusInternalServerError, "internal error: the request is for no cluster, no view, and not for the proxy API; report it with the request's Audit-Id from the proxy API's audit log")

// Scope is what is known of one request. It belongs to the goroutine that serves
// the request.
type Scope struct {
	Kind Kind
	// Target is where the request goes; zero if the proxy API itself is meant.
	Target route.Target
	// Prefix is what of the request's path the target does not get to see.
	Prefix string
	// Host is the Host header.
	Host string
	// Info is the request as the hub authorizes it.
	Info *request.RequestInfo
	// Group has the rights to clusters that the request needs.
	Group schema.GroupVersion
	// Inner is the request as the managed kube-apiservers see it; nil if the
	// proxy API itself is meant.
	Inner *request.RequestInfo
	// Leaves says that the request leaves the Kubernetes API, for which it
	// needs the right to streams.
	Leaves bool
	// Opaque says that the request is a connection to the kube-apiserver that is not looked into.
	Opaque bool
	// DryRun says that the request changes nothing (apirequest.IsDryRun).
	DryRun bool
	// AgentMetrics says that the cluster's agent answers the request, with its metrics.
	AgentMetrics bool
	// Search says that the fleet index is asked for rows of the view.
	Search bool
	// Long says that the request has no natural end.
	Long bool
	// Credential names an unverified credential, see authn.Authenticator.
	Credential string
	// Again says that it is asked again about an open stream.
	Again bool
	// PassThrough says that the hub does not know the caller, who may be a user of the
	// managed cluster.
	PassThrough bool
	// Failure is why the caller is not authenticated, or the request not understood.
	Failure error
	// Holder is whom limits count the request for.
	Holder string
	// Asked is a stream's request as it came, until revalidation has it; that of a view
	// stays, for what is relayed to one cluster.
	Asked *http.Request
	// View is the one that the request is for, once it is admitted.
	View Definition
	// Sent is when the request was sent to the cluster, and cancel ends it there.
	Sent   time.Time
	Cancel context.CancelFunc
	// BeginWithin is how long the cluster may take to begin its answer; zero means that only
	// the cluster says so.
	BeginWithin time.Duration
	// Upgraded is the header of the answer that changed the protocol.
	Upgraded http.Header
	// Discovery is a question of a view to all of its clusters about what they serve.
	Discovery bool
	// Login is what the Service gets to see as Authorization; empty for nothing.
	Login string
	// Requester is who was authenticated, and impersonates User if that is another; nil if the hub
	// does not know the caller.
	Requester user.Info
	// User is asserted to the agent; nil until the request is authorized.
	User user.Info
}

// To is where the request goes.
func (rs *Scope) To() agentclient.Target {
	to := agentclient.Target{Cluster: rs.Target.Cluster, Service: rs.Target.Service, AgentMetrics: rs.AgentMetrics}
	switch {
	case rs.Inner != nil && rs.Inner.Verb == "watch":
		to.Kind = agentclient.Watch
	case rs.Long:
		to.Kind = agentclient.Stream
	case rs.Discovery:
		to.Kind = agentclient.Discovery
	}
	return to
}

// Rights are what a user needs to have of each cluster that the request goes to.
func (rs *Scope) Rights() []authz.Right {
	group := rs.Group.Group
	if rs.AgentMetrics {
		return []authz.Right{authz.AgentMetrics.In(group)}
	}
	rights := []authz.Right{authz.Right{Verb: rs.Info.Verb}.In(group)}
	if rs.Leaves {
		rights = append(rights, authz.Streams.In(group))
	}
	return rights
}

// PolicyRequest is the request as AccessPolicies see it, but for what they know of the cluster, and
// the time. Its verb is the one that the hub is asked for; a request that leaves the Kubernetes API
// creates a stream whatever its method is, because exec by WebSocket is a GET.
func (rs *Scope) PolicyRequest() accesspolicy.Request {
	asked := accesspolicy.Request{User: rs.User, Verb: rs.Info.Verb, Path: rs.Inner.Path, DryRun: rs.DryRun, Upgrade: rs.Leaves}
	if rs.Leaves {
		asked.Verb = "create"
	}
	if rs.Requester != rs.User { // impersonation makes a user, and leaves alone what it does not change
		asked.Impersonator = rs.Requester
	}
	if inner := rs.Inner; inner.IsResourceRequest {
		asked.Group, asked.Version, asked.Resource, asked.Subresource = inner.APIGroup, inner.APIVersion, inner.Resource, inner.Subresource
		asked.Namespace, asked.Name = inner.Namespace, inner.Name
	}
	if of := rs.Target.Service; rs.Target.ForService() {
		asked.Namespace, asked.Service = of.Namespace, of.Namespace+"/"+of.Service
		if of.Port != "" {
			asked.Service += ":" + of.Port
		}
	}
	switch {
	case rs.Opaque:
		asked.Sight = accesspolicy.Nothing
	case rs.Search:
		asked.Sight = accesspolicy.NoObjects
	}
	return asked
}

// Identity is as whom the request goes there.
func (rs *Scope) Identity() agentclient.Identity {
	return agentclient.Identity{User: rs.User, PassThrough: rs.PassThrough, ServiceAuthorization: rs.Login}
}

type Key struct{}

// Of returns the scope that ServeHTTP put in the context.
func Of(ctx context.Context) *Scope {
	if rs, ok := ctx.Value(Key{}).(*Scope); ok {
		return rs
	}
	return &Scope{}
}

// UserOf is who sends a request, after impersonation.
func UserOf(ctx context.Context) user.Info {
	u, _ := request.UserFrom(ctx)
	return u
}

// UsersOnly reports whether nobody but users whom the hub knows may send such a request.
func (rs *Scope) UsersOnly() bool { return rs.Kind == View || rs.AgentMetrics }

// Anonymous reports whether a request has no credential.
func (rs *Scope) Anonymous() bool { return rs.PassThrough && rs.Credential == "" }

// IsKarmadas reports whether a request is for a view of Karmada's API.
func (rs *Scope) IsKarmadas() bool {
	return rs.Kind == View && rs.Group == karmadav1alpha1.ClusterGroupVersion
}

// Warn puts the message of a refusal into a Warning, where clients throw the Status away:
// discovery of client-go does, and kubectl shows Warnings. Of requests for resources
// they show the Status.
func Warn(header http.Header, rs *Scope, message string) {
	info := rs.Inner
	if info == nil {
		info = rs.Info
	}
	if info != nil && info.IsResourceRequest {
		return
	}
	fault.WarnOfRefusal(header, message)
}
