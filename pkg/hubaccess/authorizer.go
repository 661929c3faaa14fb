package hubaccess

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"
)

// AnnotationPrefix begins the annotations of audit events that are the addon's own.
const AnnotationPrefix = "clusterproxy.open-cluster-management.io/"

// decisionTTL is how long the hub's decisions are believed.
//
// A right that was taken away is gone after at most this time, and for open streams after
// this and --revalidate-streams together: within ten seconds.
const decisionTTL = 5 * time.Second

// Authorizer asks the hub what users may do, and believes an answer for 5 s. Its
// methods are safe for concurrent use.
type Authorizer struct {
	authorizer.Authorizer
	sets  ClusterSets
	lists *lists
}

// ClusterSets says which ManagedClusterSets there are, and what is in them.
type ClusterSets interface {
	// Sets are the names of all sets. The error means that they are not known yet.
	Sets() ([]string, error)
	// SetsOf are the names of the sets that a cluster is in.
	SetsOf(cluster string) []string
}

// NewAuthorizer does no I/O.
func NewAuthorizer(hub kubernetes.Interface, outage *Outage, sets ClusterSets) (*Authorizer, error) {
	cached, err := newDelegated(hub, decisionTTL, outage)
	if err != nil {
		return nil, err
	}
	uncached, err := newDelegated(hub, 0, outage)
	if err != nil {
		return nil, err
	}
	return &Authorizer{Authorizer: cached, sets: sets, lists: newLists(uncached)}, nil
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
	// apiserver's union of authorizers would write a name before the hub's reason.
	masters, others := authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup), outage.permissions(hubs)
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if decision, reason, err := masters.Authorize(ctx, a); decision == authorizer.DecisionAllow {
			return decision, reason, err
		}
		return others.Authorize(ctx, a)
	}), nil
}

// AuthorizeCluster decides whether a user may send requests to one cluster: by the
// cluster's name, or as a cluster of a set. The reason is the hub's, of what it said
// of the name.
func (a *Authorizer) AuthorizeCluster(ctx context.Context, u user.Info, want Right, cluster string) (authorizer.Decision, string, error) {
	decision, reason, err := a.Authorize(ctx, want.OfCluster(u, cluster))
	if decision == authorizer.DecisionAllow || err != nil {
		return decision, reason, err
	}
	// All sets are asked about, whatever sets the cluster is in, so that the time that
	// the answer takes does not tell whether there is such a cluster.
	allowed, err := a.allowedSets(ctx, u, want)
	if err != nil {
		return authorizer.DecisionNoOpinion, reason, err
	}
	if set, ok := firstIn(allowed, a.sets.SetsOf(cluster)); ok {
		return authorizer.DecisionAllow, fmt.Sprintf("allowed for ManagedClusterSet %q", set), nil
	}
	return decision, reason, nil
}

// MayReach reports whether a user has a right to a cluster.
func (a *Authorizer) MayReach(ctx context.Context, u user.Info, right Right, cluster string) bool {
	decision, _, err := a.AuthorizeCluster(ctx, u, right, cluster)
	return decision == authorizer.DecisionAllow && err == nil
}
