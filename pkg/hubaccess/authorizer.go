package hubaccess

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	authorizerunion "k8s.io/apiserver/pkg/authorization/union"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
)

// AnnotationPrefix begins the annotations of audit events that are the addon's own.
const AnnotationPrefix = "clusterproxy.open-cluster-management.io/"

// decisionTTL is how long the hub's decisions are believed.
//
// What was taken away is gone after at most this time, and for open streams after
// this and --revalidate-streams together: within ten seconds.
const decisionTTL = 5 * time.Second

// Authorizer asks the hub what users may do, and believes an answer for 5 s. Its
// methods are safe for concurrent use.
type Authorizer struct {
	authorizer.Authorizer
	lists *reachable
}

// NewAuthorizer does no I/O.
func NewAuthorizer(hub kubernetes.Interface, outage *Outage) (*Authorizer, error) {
	cached, err := newDelegated(hub, decisionTTL, outage)
	if err != nil {
		return nil, err
	}
	uncached, err := newDelegated(hub, 0, outage)
	if err != nil {
		return nil, err
	}
	return &Authorizer{Authorizer: cached, lists: newReachable(uncached)}, nil
}

// newDelegated asks the hub, by SubjectAccessReview, and believes an answer for
// ttl. As on every API server, system:masters may do everything.
func newDelegated(hub kubernetes.Interface, ttl time.Duration, outage *Outage) (authorizer.Authorizer, error) {
	hubs, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: hub.AuthorizationV1(),
		AllowCacheTTL:             ttl,
		DenyCacheTTL:              ttl,
		WebhookRetryBackoff:       &wait.Backoff{Duration: 200 * time.Millisecond, Factor: 1.5, Jitter: 0.2, Steps: 3},
	}.New()
	if err != nil {
		return nil, fmt.Errorf("preparing authorization by the hub: %w", err)
	}
	return authorizerunion.New(authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup), outage.permissions(hubs)), nil
}

// MayReach reports whether a user may send requests to a cluster's API at all.
func (a *Authorizer) MayReach(ctx context.Context, u user.Info, cluster string) bool {
	decision, _, err := a.Authorize(ctx, proxyAttributes(u, cluster))
	return decision == authorizer.DecisionAllow && err == nil
}

// Reachable returns those of the clusters that a user may reach, sorted. The answer may
// be 5 s old. The caller must not change it.
func (a *Authorizer) Reachable(ctx context.Context, u user.Info, clusters func() []string) ([]string, error) {
	return a.lists.of(ctx, u, clusters)
}

// proxyAttributes ask whether a user may send requests to a cluster's API at
// all; the empty name means every cluster's.
func proxyAttributes(u user.Info, cluster string) authorizer.Attributes {
	return authorizer.AttributesRecord{
		User: u, Verb: "get", ResourceRequest: true, APIGroup: v1alpha1.GroupVersion.Group, APIVersion: v1alpha1.GroupVersion.Version,
		Resource: v1alpha1.Resource, Subresource: v1alpha1.ProxySubresource, Name: cluster,
		Path: "/apis/" + v1alpha1.GroupVersion.String() + "/" + v1alpha1.Resource + "/" + cluster + "/" + v1alpha1.ProxySubresource,
	}
}
