package filter

import (
	"net/http"
	"slices"

	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// Anonymous stands, in audit events, for a caller whom the hub does not know.
var Anonymous = &user.DefaultInfo{Name: user.Anonymous, Groups: []string{user.AllUnauthenticated}}

// WithAuthentication finds out who sends a request. A caller whom the hub does not
// know may still be a user of a managed cluster, but not of the proxy API
// itself. One without a credential is refused before anything is dialed, unless
// anonymous requests are allowed, or those for the Service that is asked for. Views and
// agents' metrics are for the hub's users alone: a token of one cluster must reach no
// other, and an agent knows no users.
func (f *Filters) WithAuthentication(next, failed http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rs := scope.Of(r.Context())
		if rs.Kind == scope.None {
			rs.Failure = scope.ErrNoScope
			failed.ServeHTTP(w, r)
			return
		}
		u, credential, err := f.authenticate(rs, r)
		rs.Credential = credential
		switch {
		case err != nil:
		case rs.UsersOnly() && (u == nil && credential == "" || u != nil && isAnonymous(u)):
			err = noCredential
		case rs.Kind == scope.View && u == nil:
			err = notForViews
		case u != nil:
			// The hub's credential has done its work. Nothing after this sees it.
			r.Header.Del("Authorization")
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), u)))
			return
		case rs.Kind == scope.Own || rs.AgentMetrics || r.Method == http.MethodConnect || credential == "" && !f.mayBeAnonymous(rs):
			err = noCredential
		default:
			rs.PassThrough = true
			if !wsstream.IsWebSocketRequest(r) {
				// The hub was not asked about a token in there: its
				// authenticator reads WebSocket requests only.
				agentclient.DeleteWebSocketTokens(r.Header)
			}
			audit.AddAuditAnnotation(r.Context(), scope.AnnotationPrefix+"user", "whom the managed cluster knows")
			next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), Anonymous)))
			return
		}
		f.Metrics.Rejected.WithLabelValues("authentication").Inc()
		rs.Failure = err
		failed.ServeHTTP(w, r)
	})
}

func (f *Filters) authenticate(rs *scope.Scope, r *http.Request) (user.Info, string, error) {
	if rs.Again {
		return f.Authenticator.AuthenticateAgain(r)
	}
	return f.Authenticator.Authenticate(r, rs.Target.Cluster)
}

// notForViews is the answer to a caller whom the hub does not know, and a managed
// cluster may.
var notForViews = status.New(http.StatusUnauthorized, "the hub does not know the token, and fleet views are for users of the hub: send a token of the hub, or a client certificate; a managed cluster's own tokens are for that cluster's path")

// isAnonymous reports whether a front proxy says of a caller that it does not know them.
func isAnonymous(u user.Info) bool {
	return u.GetName() == user.Anonymous || slices.Contains(u.GetGroups(), user.AllUnauthenticated)
}
