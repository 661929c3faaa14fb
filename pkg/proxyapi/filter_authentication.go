package proxyapi

import (
	"net/http"

	"k8s.io/apimachinery/pkg/util/httpstream/wsstream"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
)

// anonymous stands, in audit events, for a caller whom the hub does not know.
var anonymous = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}

// withAuthentication finds out who sends a request. A caller whom the hub does not
// know may still be a user of a managed cluster, but not of the proxy API
// itself. One without a credential is refused before anything is dialed, unless
// anonymous requests are allowed, or those for the Service that is asked for.
func (f *requestFilters) withAuthentication(next, failed http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope := scopeOf(r.Context())
		u, credential, err := f.authenticator.Authenticate(r)
		scope.credential = credential
		switch {
		case err != nil:
		case u != nil:
			// The hub's credential has done its work. Nothing after this sees it.
			r.Header.Del("Authorization")
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), u)))
			return
		case scope.inner == nil || r.Method == http.MethodConnect || credential == "" && !f.mayBeAnonymous(scope):
			err = noCredential
		default:
			scope.passThrough = true
			if !wsstream.IsWebSocketRequest(r) {
				// The hub was not asked about a token in there: its
				// authenticator reads WebSocket requests only.
				agentclient.DeleteWebSocketTokens(r.Header)
			}
			audit.AddAuditAnnotation(r.Context(), annotationPrefix+"user", "whom the managed cluster knows")
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), anonymous)))
			return
		}
		f.metrics.denied.WithLabelValues("authentication").Inc()
		scope.failure = err
		failed.ServeHTTP(w, r)
	})
}
