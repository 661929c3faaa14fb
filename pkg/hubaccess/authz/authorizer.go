package authz

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/outage"
)

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
	// Containing returns what names those of the sets that a cluster is in, in their order.
	Containing(sets []string) func(cluster string) []string
}

// NewAuthorizer does no I/O.
func NewAuthorizer(hub kubernetes.Interface, outage *outage.Grace, sets ClusterSets) (*Authorizer, error) {
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
func newDelegated(hub kubernetes.Interface, ttl time.Duration, outage *outage.Grace) (authorizer.Authorizer, error) {
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
	masters, others := authorizerfactory.NewPrivilegedGroups(user.SystemPrivilegedGroup), outage.Permissions(hubs)
	return authorizer.AuthorizerFunc(func(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
		if decision, reason, err := masters.Authorize(ctx, a); decision == authorizer.DecisionAllow {
			return decision, reason, err
		}
		return others.Authorize(ctx, a)
	}), nil
}
