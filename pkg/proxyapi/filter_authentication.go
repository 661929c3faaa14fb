package proxyapi

import (
	"net/http"
	"slices"

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
// anonymous requests are allowed, or those for the Service that is asked for. Views and
// agents' metrics are for the hub's users alone: a token of one cluster must reach no
// other, and an agent knows no users.
func (f *requestFilters) withAuthentication(next, failed http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scope := scopeOf(r.Context())
		if scope.kind == noScope {
			scope.failure = errNoScope
			failed.ServeHTTP(w, r)
			return
		}
		u, credential, err := f.authenticate(scope, r)
		scope.credential = credential
		switch {
		case err != nil:
		case scope.usersOnly() && (u == nil && credential == "" || u != nil && isAnonymous(u)):
			err = noCredential
		case scope.kind == viewScope && u == nil:
			err = notForViews
		case u != nil:
			// The hub's credential has done its work. Nothing after this sees it.
			r.Header.Del("Authorization")
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), u)))
			return
		case scope.kind == ownScope || scope.agentMetrics || r.Method == http.MethodConnect || credential == "" && !f.mayBeAnonymous(scope):
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
		f.metrics.rejected.WithLabelValues("authentication").Inc()
		scope.failure = err
		failed.ServeHTTP(w, r)
	})
}

func (f *requestFilters) authenticate(scope *requestScope, r *http.Request) (user.Info, string, error) {
	if scope.again {
		return f.authenticator.AuthenticateAgain(r)
	}
	return f.authenticator.Authenticate(r, scope.target.Cluster)
}

// usersOnly reports whether nobody but users whom the hub knows may send such a request.
func (scope *requestScope) usersOnly() bool { return scope.kind == viewScope || scope.agentMetrics }

// notForViews is the answer to a caller whom the hub does not know, and a managed
// cluster may.
var notForViews = refusal(http.StatusUnauthorized, "the hub does not know the token, and fleet views are for users of the hub: send a token of the hub, or a client certificate; a managed cluster's own tokens are for that cluster's path")

// isAnonymous reports whether a front proxy says of a caller that it does not know them.
func isAnonymous(u user.Info) bool {
	return u.GetName() == user.Anonymous || slices.Contains(u.GetGroups(), user.AllUnauthenticated)
}
