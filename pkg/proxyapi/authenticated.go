package proxyapi

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// anonymous stands, in audit events, for a caller whom the hub does not know.
var anonymous = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}

type failureKey struct{}

// authenticated finds out who sends a request. Whom the hub does not know may
// still be somebody on a managed cluster, and nobody at the proxy API itself.
func (h *handler) authenticated(next, failed http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c := callOf(r.Context())
		u, credential, err := h.callers.authenticate(r)
		c.credential = credential
		switch {
		case err != nil:
		case u != nil:
			// The hub's credential has done its work. Nothing after this sees it.
			r.Header.Del("Authorization")
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), u)))
			return
		case c.inner == nil || r.Method == http.MethodConnect:
			err = &problem{http.StatusUnauthorized, "the hub does not know who you are: send a token of the hub, or a client certificate"}
		default:
			c.passThrough = true
			if !wsstream.IsWebSocketRequest(r) {
				// The hub was not asked about a token in there: its
				// authenticator reads WebSocket requests only.
				deleteWebSocketTokens(r.Header)
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
