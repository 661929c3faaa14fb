package apihandler

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
)

// Access decides which user a request is from, and whether it may pass. The zero value
// accepts the hub's users only, without an owner policy.
type Access struct {
	// Owner returns the owner policy in force; with an error nothing passes. Nil means
	// no policy.
	Owner func() (ownerpolicy.Policy, error)
	// OnHub says that this cluster is the hub itself, whose users are themselves
	// here.
	OnHub bool
	// OIDC authenticates users of an identity provider, in requests that carry no
	// user of the hub. It may change a request only if it authenticates it. Nil
	// authenticates none.
	OIDC authenticator.Request
	// ExtraKeys are keys of users' extras that the agent may assert besides
	// agentapi.ExtraKeys. It leaves out others, and refuses a user with scopes among them.
	ExtraKeys []string
	// Index answers the fleet index with rows. Nil refuses it.
	Index http.Handler
	// NoHubUsers refuses the hub's users: the cluster's own credentials and OIDC
	// are left.
	NoHubUsers bool

	metrics *metrics
}

// errNoHubUsers tells a user of the hub why the request is refused.
var errNoHubUsers = errors.New("this cluster does not accept users of the hub: its AddOnDeploymentConfig has enableImpersonation=false; send a token of this cluster")

type impersonationKey struct{}

// impersonatedUser is the user that the agent impersonates for a request.
type impersonatedUser struct {
	config transport.ImpersonationConfig
	// groups are those of a user of the hub who is somebody else here, and allowed the reserved
	// names that the cluster's owner allows.
	groups, allowed []string
}

// warnedGroups is how many groups a warning names, and warnedBytes how long a name is there.
const warnedGroups, warnedBytes = 5, 100

// warnOfGroups tells a user whom the cluster refuses that it was not told of groups of theirs: an
// administrator of the hub would look for the reason elsewhere.
func warnOfGroups(resp *http.Response) {
	as, ok := resp.Request.Context().Value(impersonationKey{}).(impersonatedUser)
	if !ok || resp.StatusCode != http.StatusForbidden {
		return
	}
	groups := leftOut(as.groups, as.allowed)
	if len(groups) == 0 {
		return
	}
	groups = groups[:min(len(groups), warnedGroups)]
	for i, group := range groups {
		groups[i] = strings.ToValidUTF8(group[:min(len(group), warnedBytes)], "")
	}
	text := fmt.Sprintf("this cluster is not told of your groups %s on the hub, which mean something to its own control plane: bind a role there to user %q", strings.Join(groups, ", "), as.config.UserName)
	if warning, err := utilnet.NewWarningHeader(299, "-", text); err == nil {
		resp.Header.Add("Warning", warning)
	}
}

// impersonationOf returns the user that the agent impersonates for a request. Without
// one the request keeps the credential that came with it.
func impersonationOf(ctx context.Context) (transport.ImpersonationConfig, bool) {
	as, ok := ctx.Value(impersonationKey{}).(impersonatedUser)
	return as.config, ok
}

func (a Access) filter(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		policy, err := a.policyFor(r)
		if err != nil {
			a.forbid(w, r, "owner", err)
			return
		}
		u, err := hubUser(r.Header)
		if err != nil || u != nil && hasWebSocketToken(r.Header) {
			a.metrics.rejectIdentity("malformed")
			refuse(w, http.StatusBadRequest, "the headers that say who the user is are malformed or contradict each other")
			return
		}
		if agentapi.Has(r.Header, agentapi.ForService) {
			next.ServeHTTP(w, r) // the Service authorizes it, or forAgent
			return
		}
		if u != nil && a.NoHubUsers {
			a.forbid(w, r, "hub-user", errNoHubUsers)
			return
		}
		config, ok, err := a.whom(r, u, policy)
		if err != nil {
			a.forbid(w, r, "reserved", err)
			return
		}
		if ok {
			as := impersonatedUser{config: config}
			if u != nil && !a.OnHub {
				as.groups, as.allowed = u.GetGroups(), policy.AllowedReservedNames
			}
			r = r.WithContext(context.WithValue(r.Context(), impersonationKey{}, as))
		}
		next.ServeHTTP(w, r)
	})
}

// whom returns the user that the agent impersonates, if any; u is a user of the hub, or
// nil.
func (a Access) whom(r *http.Request, u user.Info, policy ownerpolicy.Policy) (config transport.ImpersonationConfig, ok bool, err error) {
	isHubs := u != nil
	if !isHubs {
		if u = a.oidcUser(r); u == nil {
			return config, false, nil
		}
	}
	extra, err := a.assertable(u.GetExtra())
	if err != nil {
		return config, false, err
	}
	u = &user.DefaultInfo{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: extra}
	switch {
	case isHubs && a.OnHub:
		config, err = themselves(u)
		return config, true, err
	case isHubs:
		u, err = fromHub(u)
	default:
		err = checkOwn(u)
	}
	if err != nil {
		return config, false, err
	}
	config, err = impersonation(u, policy.AllowedReservedNames)
	return config, true, err
}

// assertable returns the extras of a user that the agent may assert. The kube-apiserver
// asks for a right to each key, and would refuse the whole request for one that the
// authenticator of a cloud has added, which means nothing on this cluster and may be a
// credential of the hub's. An extra with scopes says that a token is good for less than
// its user is: to leave it out would widen the user's rights, so it is an error.
func (a Access) assertable(extra map[string][]string) (map[string][]string, error) {
	kept := map[string][]string{}
	for key, values := range extra {
		switch {
		case slices.Contains(agentapi.ExtraKeys, key) || slices.Contains(a.ExtraKeys, key):
			kept[key] = values
		case strings.Contains(strings.ToLower(key), "scope"):
			return nil, fmt.Errorf("the extra %q restricts what the user's token is good for, and the agent may not assert it on this cluster: list it in the customized variable extraKeys of its AddOnDeploymentConfig", key)
		default:
			a.metrics.leaveOutExtra(key)
		}
	}
	return kept, nil
}

// policyFor is the owner's policy, or why it stops a request.
func (a Access) policyFor(r *http.Request) (ownerpolicy.Policy, error) {
	if a.Owner == nil {
		return ownerpolicy.Policy{}, nil
	}
	policy, err := a.Owner()
	if err != nil {
		return policy, err
	}
	if agentapi.ForAgent(r.Header) {
		return policy, policy.CheckMetrics()
	}
	if agentapi.Has(r.Header, agentapi.ForService) {
		return policy, policy.CheckService()
	}
	return policy, policy.Check(r)
}

// oidcUser returns the user of the identity provider that a request is from, or nil. A
// token that the provider did not issue, or that is invalid, goes on to the
// kube-apiserver, which decides for itself; and so does one that comes with Impersonate
// headers, which need a right that only the kube-apiserver knows of.
func (a Access) oidcUser(r *http.Request) user.Info {
	if a.OIDC == nil || agentapi.Has(r.Header, agentapi.Impersonate) {
		return nil
	}
	response, ok, err := a.OIDC.AuthenticateRequest(r)
	if err != nil {
		klog.FromContext(r.Context()).V(1).Info("Leaving a token to the kube-apiserver", "reason", err.Error())
	}
	if err != nil || !ok {
		return nil
	}
	return response.User
}

func hasWebSocketToken(header http.Header) bool {
	for _, line := range header["Sec-Websocket-Protocol"] {
		if strings.Contains(line, agentapi.WebSocketToken) {
			return true
		}
	}
	return false
}

func (a Access) forbid(w http.ResponseWriter, r *http.Request, reason string, err error) {
	a.metrics.rejectIdentity(reason)
	klog.FromContext(r.Context()).Info("Refused a request", "reason", reason, "message", err.Error())
	refuse(w, http.StatusForbidden, err.Error())
}
