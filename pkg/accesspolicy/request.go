package accesspolicy

import (
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// Sight is how much of a request can be seen. A larger one is less.
type Sight int

const (
	// Whole is all of it.
	Whole Sight = iota
	// NoObjects is a request that may be about objects of any kind, such as a search.
	NoObjects
	// Nothing is a connection that is not looked into, such as CONNECT to a kube-apiserver.
	Nothing
)

// Request is what policies are asked about.
type Request struct {
	// User is as whom the request is made; nil if the hub does not know the caller.
	User user.Info
	// Impersonator is who makes the request as User; nil if nobody impersonates.
	Impersonator user.Info
	// The other variables are documented with the kind AccessPolicy; what Sight hides is not read.
	Verb, Group, Version, Resource, Subresource, Namespace, Name, Path string
	DryRun, Upgrade                                                    bool
	Service                                                            string
	Sight                                                              Sight
	Cluster                                                            Cluster
	Now                                                                time.Time
}

// Cluster is the one that a request is for.
type Cluster struct {
	Name           string
	Labels, Claims map[string]string
	// Sets returns the ManagedClusterSets that the cluster is in. It is called if a rule reads them.
	Sets func() []string
}

// Reason is why a policy objects to a request.
type Reason string

// The reasons.
const (
	// NotTrue means that the rule is not true.
	NotTrue Reason = "rule"
	// Failed means that the rule does not compile, cannot be evaluated or costs too much.
	Failed Reason = "failed"
	// Hidden means that the rule reads what is hidden of the request.
	Hidden Reason = "hidden"
)

// Objection is what a policy has against a request.
type Objection struct {
	Policy, Rule string
	Mode         v1alpha1.AccessPolicyMode
	Reason       Reason
	// Message is for the user. It names the policy and the rule.
	Message string
	// Err is why the rule could not be evaluated.
	Err error
}

// Refuses reports whether the request must not go on. A mode that is not known refuses.
func (o *Objection) Refuses() bool {
	return o.Mode != v1alpha1.ModeWarn && o.Mode != v1alpha1.ModeAudit
}

// Decision is what policies say of a request.
type Decision struct {
	// Asked are the names of the policies that select the request, in their order, until the one
	// that refused it.
	Asked []string
	// Objections are theirs, in that order.
	Objections []*Objection
}

// Refusal returns the objection that refuses the request; nil if none does.
func (d *Decision) Refusal() *Objection {
	if len(d.Objections) > 0 && d.Objections[len(d.Objections)-1].Refuses() {
		return d.Objections[len(d.Objections)-1]
	}
	return nil
}
