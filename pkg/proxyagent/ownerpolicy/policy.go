package ownerpolicy

import (
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/pkg/apirequest"
)

// ConfigMap and Key are where the owner writes the policy.
const (
	ConfigMap = "cluster-proxy-owner-policy"
	Key       = "policy.yaml"
)

// Policy is what the owner says. The zero value caps nothing and allows no
// reserved name.
type Policy struct {
	// ReadOnly lets through what only reads, and streams not at all: exec is
	// a way to write.
	ReadOnly bool `json:"readOnly,omitempty"`
	// NoStreams stops exec, attach, port-forward, proxy subresources, every
	// other upgrade but a watch by WebSocket, and requests for Services.
	NoStreams bool `json:"noStreams,omitempty"`
	// NoSecrets stops requests for Secrets and for tokens of service accounts.
	NoSecrets bool `json:"noSecrets,omitempty"`
	// NoMetrics stops requests for the metrics of the agent itself.
	NoMetrics bool `json:"noMetrics,omitempty"`
	// NoIndex keeps the rows of the cluster's objects from the fleet index.
	NoIndex bool `json:"noIndex,omitempty"`
	// AllowedReservedNames are names of users and groups that may be asserted
	// although they are a control plane's own, such as system:masters.
	AllowedReservedNames []string `json:"allowedReservedNames,omitempty"`
}

// Parse reads a policy. A field that it does not know is an error.
func Parse(content []byte) (Policy, error) {
	var p Policy
	if err := yaml.UnmarshalStrict(content, &p); err != nil {
		return Policy{}, fmt.Errorf("parsing the owner's policy: %w", err)
	}
	if slices.Contains(p.AllowedReservedNames, "") {
		return Policy{}, fmt.Errorf("parsing the owner's policy: allowedReservedNames has an empty name")
	}
	return p, nil
}

// Capped is the error of a request that the owner does not want.
type Capped struct{ What, Cap string }

func (c *Capped) Error() string {
	return fmt.Sprintf("the owner of this cluster allows no %s from the hub: %s is set in ConfigMap %s on the managed cluster", c.What, c.Cap, ConfigMap)
}

// Caps reports whether the policy stops any request for the kube-apiserver.
func (p Policy) Caps() bool { return p.ReadOnly || p.NoStreams || p.NoSecrets }

// CheckService is the error of a request for a Service: nil or a *Capped.
func (p Policy) CheckService() error {
	if p.ReadOnly {
		return &Capped{"request for a Service", "readOnly"}
	}
	if p.NoStreams {
		return &Capped{"request for a Service", "noStreams"}
	}
	return nil
}

// CheckMetrics is the error of a request for the metrics of the agent: nil or a *Capped.
func (p Policy) CheckMetrics() error {
	if p.NoMetrics {
		return &Capped{"request for the agent's metrics", "noMetrics"}
	}
	return nil
}

// CheckIndex is the error of a request for rows of objects: nil or a *Capped.
func (p Policy) CheckIndex() error {
	if p.NoIndex {
		return &Capped{"rows for the fleet index", "noIndex"}
	}
	return nil
}

// Check is the error of a request for the kube-apiserver: nil, a *Capped, or
// why the request cannot be understood.
func (p Policy) Check(r *http.Request) error {
	if !p.Caps() {
		return nil
	}
	info, err := apirequest.Resolver.NewRequestInfo(r)
	if err != nil {
		return fmt.Errorf("reading what the request is for: %w", err)
	}
	if apirequest.LeavesAPI(r, info) {
		if p.ReadOnly {
			return &Capped{"exec, port-forward or other stream", "readOnly"}
		}
		if p.NoStreams {
			return &Capped{"exec, port-forward or other stream", "noStreams"}
		}
	}
	if p.ReadOnly && !reads(r, info) {
		return &Capped{"request that writes", "readOnly"}
	}
	if p.NoSecrets && secret(info) {
		return &Capped{"request for Secrets or tokens", "noSecrets"}
	}
	return nil
}

// reads looks at the method as well as at the verb: the verb of a path below
// /api/v1/watch is "watch" for every method.
func reads(r *http.Request, info *request.RequestInfo) bool {
	if apirequest.IsSelfReview(info) {
		return true
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	return !info.IsResourceRequest || slices.Contains([]string{"get", "list", "watch"}, info.Verb)
}

func secret(info *request.RequestInfo) bool {
	return info.IsResourceRequest && info.APIGroup == "" &&
		(info.Resource == "secrets" || info.Resource == "serviceaccounts" && info.Subresource == "token")
}
