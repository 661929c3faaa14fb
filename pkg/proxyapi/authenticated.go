package proxyapi

import (
	"context"
	"errors"
	"net/http"

	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
)

// anonymous stands, in audit events, for a caller whom the hub does not know.
var anonymous = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}

type failureKey struct{}

// authenticated finds out who sends a request. A caller whom the hub does not
// know may still be somebody on a managed cluster, but not at the proxy API
// itself. One without a credential is refused before anything is dialed, unless
// anonymous requests are allowed, or those for the Service that is asked for.
func (h *handler) authenticated(next, failed http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		u, credential, err := h.authenticator.Authenticate(r)
		c.credential = credential
		switch {
		case err != nil:
		case u != nil:
			// The hub's credential has done its work. Nothing after this sees it.
			r.Header.Del("Authorization")
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), u)))
			return
		case c.inner == nil || r.Method == http.MethodConnect || credential == "" && !h.mayBeAnonymous(c):
			err = noCredential
		default:
			c.passThrough = true
			if !wsstream.IsWebSocketRequest(r) {
				// The hub was not asked about a token in there: its
				// authenticator reads WebSocket requests only.
				agentclient.DeleteWebSocketTokens(r.Header)
			}
			audit.AddAuditAnnotation(r.Context(), annotationPrefix+"user", "whom the managed cluster knows")
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), anonymous)))
			return
		}
		h.metrics.denied.WithLabelValues("authentication").Inc()
		failed.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), failureKey{}, err)))
	})
}

// unauthenticated answers a request whose sender is nobody.
func (h *handler) unauthenticated(w http.ResponseWriter, r *http.Request) {
	err, _ := r.Context().Value(failureKey{}).(error)
	h.refuse(w, r, err)
}

// noCredential is the answer to a caller who must show a credential.
var noCredential = refusal(http.StatusUnauthorized, "the hub does not know who you are: send a token of the hub, or a client certificate")

// notAccepted is the answer to a caller whom the hub does not know, about a
// cluster that has not accepted the credential: it is the same whether the
// cluster refused it, cannot be reached, or does not exist.
var notAccepted = refusal(http.StatusUnauthorized, "neither the hub nor a cluster of this name accepts the token: send a token of the hub, or one of a cluster that is connected")

// hidden returns notAccepted in place of errors that would tell a caller, whom
// neither the hub nor the cluster has vouched for, about clusters. Anonymous
// requests are allowed to tell clusters apart if they are allowed at all, but not if
// they are for one Service only.
func (h *handler) hidden(c *call, err error) error {
	var refused *hubaccess.RefusedError
	var malformed *route.Error
	if !c.passThrough || c.credential == "" && h.allowAnonymous || c.credential != "" && h.authenticator.WasAcceptedBy(c.target.Cluster, c.credential) {
		return err
	}
	if errors.As(err, &refused) || errors.As(err, &malformed) || errors.Is(err, context.Canceled) {
		return err
	}
	if c.credential == "" {
		return noCredential
	}
	return notAccepted
}
