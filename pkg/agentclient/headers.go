package agentclient

import (
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

// frontProxyHeaders are headers that only the hub's side sends to agents.
var frontProxyHeaders = []string{agentapi.FrontProxy, agentapi.ForService}

// callersHeaders are the headers with a caller's own identity. If the hub knows the
// caller, they are not sent on.
var callersHeaders = []string{"Authorization", agentapi.Impersonate}

// errUndecided is the error of a request without a Target or an Identity. It is a bug
// of the caller, and must not be sent.
var errUndecided = errors.New("internal error: the request has no target or no identity; report it with the request's Audit-Id from the proxy API's audit log")

// SetHeaders tells the agent by front-proxy headers which user a request is from, and
// which Service it is for. It first deletes every header that could say so, and then
// sets them. RoundTrip calls it. After an error the request must not be sent.
func SetHeaders(r *http.Request, to Target, as Identity) error {
	header := r.Header
	agentapi.Delete(header, agentapi.Forwarded)
	agentapi.Delete(header, frontProxyHeaders)
	switch {
	case to.Cluster == "":
		return errUndecided
	case as.User != nil:
		if err := CheckUser(as.User); err != nil {
			return err
		}
		agentapi.Delete(header, callersHeaders)
		DeleteWebSocketTokens(header)
		transport.SetAuthProxyHeaders(r, as.User.GetName(), as.User.GetUID(), as.User.GetGroups(), withoutCredentials(as.User.GetExtra()))
	case !as.PassThrough:
		return errUndecided
	}
	agentapi.SetService(header, to.Service)
	if to.AgentMetrics {
		agentapi.SetAgentMetrics(header)
	}
	if as.ServiceAuthorization != "" {
		header.Set(agentapi.ServiceAuthorization, as.ServiceAuthorization)
	}
	if host, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		header.Set("X-Forwarded-For", host)
	}
	return nil
}

// credentialExtras are keys of extras, in lower case, with a credential of the user's in their
// values: by them GKE's authenticator hands on to webhooks who the user is for Google.
var credentialExtras = []string{"iam.gke.io/user-assertion", "user-assertion.cloud.google.com"}

// withoutCredentials returns the extras that an agent may be told of: no credential leaves the hub.
func withoutCredentials(extra map[string][]string) map[string][]string {
	kept := map[string][]string{}
	for key, values := range extra {
		if !slices.Contains(credentialExtras, strings.ToLower(key)) {
			kept[key] = values
		}
	}
	return kept
}

// CheckUser returns a *status.Error for a user whose names could turn into
// others on their way: HTTP drops blanks around a value, and ends it at a line's end.
func CheckUser(u user.Info) error {
	names := append([]string{u.GetName(), u.GetUID()}, u.GetGroups()...)
	for key, values := range u.GetExtra() {
		names = append(append(names, key), values...)
	}
	for _, name := range names {
		if strings.TrimSpace(name) != name || strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			return status.New(http.StatusForbidden, "the user's name, groups or extra have blanks at an end or control characters, and cannot be passed on to a cluster: use another user")
		}
	}
	if u.GetName() == "" {
		return status.New(http.StatusForbidden, "the hub gives the user no name to pass on to a cluster: use another user")
	}
	return nil
}

// DeleteWebSocketTokens keeps the WebSocket protocols that are no tokens.
func DeleteWebSocketTokens(header http.Header) {
	lines := header["Sec-Websocket-Protocol"]
	if len(lines) == 0 {
		return
	}
	var kept []string
	for _, line := range lines {
		for protocol := range strings.SplitSeq(line, ",") {
			if protocol = strings.TrimSpace(protocol); protocol != "" && !strings.HasPrefix(protocol, agentapi.WebSocketToken) {
				kept = append(kept, protocol)
			}
		}
	}
	if header.Del("Sec-Websocket-Protocol"); len(kept) > 0 {
		header.Set("Sec-Websocket-Protocol", strings.Join(kept, ", "))
	}
}
