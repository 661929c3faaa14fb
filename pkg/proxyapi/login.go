package proxyapi

import (
	"fmt"
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

// terms are those of the Service that a request is for.
func (h *handler) terms(c *call) agentapi.ServiceTerms {
	return h.services.terms(c.target.Cluster, h.clusters.ClusterSet(c.target.Cluster), c.target.Service)
}

// mayBeAnonymous reports whether a request without a credential may go on.
func (h *handler) mayBeAnonymous(c *call) bool {
	return h.allowAnonymous || c.target.ForService() && h.terms(c).Anonymous
}

// admitToService decides about a request for a Service, and about what the Service
// gets to see as Authorization.
func (h *handler) admitToService(c *call, r *http.Request) error {
	s, terms := c.target.Service, h.terms(c)
	if c.passThrough && c.credential == "" && !terms.Anonymous {
		return refusal(http.StatusUnauthorized, "Services are not for anonymous users: send a token")
	}
	if !terms.Exposed {
		return refusal(http.StatusForbidden, fmt.Sprintf("Service %s/%s is not in the exposed services allowlist for this cluster: add it to the value exposedServices of the hub's chart", s.Namespace, s.Service))
	}
	logins := r.Header[agentapi.ServiceAuthorization]
	switch {
	case len(logins) == 0:
		return nil
	case !terms.ForwardAuthorization:
		return refusal(http.StatusForbidden, fmt.Sprintf("logins are not forwarded to Service %s/%s: set forwardAuthorization in its entry of the value exposedServices of the hub's chart", s.Namespace, s.Service))
	case len(logins) > 1:
		return refusal(http.StatusBadRequest, "the request has more than one "+agentapi.ServiceAuthorization+" header: send one")
	}
	if err := h.authenticator.CheckServiceLogin(r, logins[0]); err != nil {
		return err
	}
	c.login = logins[0]
	return nil
}
