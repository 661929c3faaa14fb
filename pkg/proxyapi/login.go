package proxyapi

import (
	"fmt"
	"net/http"
	"strings"

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
		return &problem{http.StatusUnauthorized, "Services are not for anonymous users: send a token"}
	}
	if !terms.Exposed {
		return &problem{http.StatusForbidden, fmt.Sprintf("Service %s/%s is not in the exposed services allowlist for this cluster: add it to the value exposedServices of the hub's chart", s.Namespace, s.Service)}
	}
	logins := r.Header[agentapi.ServiceAuthorization]
	switch {
	case len(logins) == 0:
		return nil
	case !terms.ForwardAuthorization:
		return &problem{http.StatusForbidden, fmt.Sprintf("logins are not forwarded to Service %s/%s: set forwardAuthorization in its entry of the value exposedServices of the hub's chart", s.Namespace, s.Service)}
	case len(logins) > 1:
		return &problem{http.StatusBadRequest, "the request has more than one " + agentapi.ServiceAuthorization + " header: send one"}
	}
	if err := h.callers.notOfTheHub(r, logins[0]); err != nil {
		return err
	}
	c.login = logins[0]
	return nil
}

// notOfTheHub returns an error if what a Service is to get may be a credential of
// the hub. The hub knows bearer tokens only, and is asked about these as about
// those in Authorization: "does not know" is all that lets one through. It is not
// asked about other schemes, whose secrets are none of the hub's business.
func (c *callers) notOfTheHub(r *http.Request, login string) error {
	if !isBearer(login) {
		return nil
	}
	scheme, token, _ := strings.Cut(login, " ")
	if !strings.EqualFold(scheme, "bearer") || oddBearer(login) {
		return &problem{http.StatusBadRequest, "the " + agentapi.ServiceAuthorization + " header must be \"Bearer <token>\", with one space, or have another scheme: send it like that"}
	}
	asked := (&http.Request{Header: http.Header{"Authorization": {login}}, URL: r.URL, RemoteAddr: r.RemoteAddr}).WithContext(r.Context())
	_, known, err := c.ask(asked, credentialOf(asked), classOf(token))
	switch {
	case known && err == nil:
		return &problem{http.StatusForbidden, "the token in " + agentapi.ServiceAuthorization + " is one of the hub's, which do not leave it: send one of the Service's own"}
	case err == nil || err.Error() == unknownToken:
		return nil
	}
	return undecided(err)
}
