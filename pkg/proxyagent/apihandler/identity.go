package apihandler

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/http/httpguts"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/transport"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// hubPrefix is put before names of the hub that mean something else on this cluster.
const hubPrefix = identity.HubUserPrefix

const (
	headerUser  = agentapi.FrontProxy + "User"
	headerUID   = agentapi.FrontProxy + "Uid"
	headerGroup = agentapi.FrontProxy + "Group"
	prefixExtra = agentapi.FrontProxy + "Extra-"
)

// identityHeaders are the beginnings of the names of headers that say who a request
// is from. With an asserted identity none of them may reach the kube-apiserver.
var identityHeaders = []string{"Authorization", "Proxy-Authorization", agentapi.Impersonate, agentapi.FrontProxy}

// hubUser returns the user that the proxy API asserts in Kubernetes' front-proxy
// headers (requestheader), or nil. Every header must have its plain spelling and make
// sense, or the request is refused: two readers must not
// understand it in two ways.
func hubUser(header http.Header) (user.Info, error) {
	if !agentapi.Has(header, agentapi.FrontProxy) {
		return nil, nil
	}
	u := &user.DefaultInfo{Extra: map[string][]string{}}
	for name, values := range header {
		if !agentapi.Begins(name, agentapi.FrontProxy) {
			continue
		}
		key, isExtra := strings.CutPrefix(name, prefixExtra)
		switch {
		case isExtra:
			unescaped, err := url.PathUnescape(key)
			unescaped = strings.ToLower(unescaped)
			if err != nil || unescaped == "" || u.Extra[unescaped] != nil {
				return nil, fmt.Errorf("header %q names no key, or one that is named twice", name)
			}
			u.Extra[unescaped] = values
		case name == headerGroup:
			u.Groups = values
		case name == headerUser && len(values) == 1:
			u.Name = values[0]
		case name == headerUID && len(values) == 1:
			u.UID = values[0]
		default:
			return nil, fmt.Errorf("header %q with %d values does not identify a user", name, len(values))
		}
	}
	if u.Name == "" {
		return nil, fmt.Errorf("there are %s headers, but none of them names a user", agentapi.FrontProxy)
	}
	return u, nil
}

// fromHub returns a user of the hub under their names on this cluster.
func fromHub(u user.Info) (user.Info, error) {
	out := &user.DefaultInfo{Name: identity.OnManagedCluster(u.GetName()), UID: u.GetUID(), Extra: u.GetExtra()}
	if err := checkOwn(u); err != nil {
		return nil, err
	}
	for _, group := range u.GetGroups() {
		out.Groups = append(out.Groups, identity.OnManagedCluster(group))
	}
	return out, nil
}

// checkOwn refuses names that only the agent gives.
func checkOwn(u user.Info) error {
	for _, name := range append([]string{u.GetName()}, u.GetGroups()...) {
		if strings.HasPrefix(name, hubPrefix) {
			return fmt.Errorf("%q would be taken for a service account of the hub: names with %s belong to the agent", name, hubPrefix)
		}
	}
	return nil
}

// reserved reports whether a name means something to a cluster's own control plane. system:authenticated is harmless, since it
// is true of every user.
func reserved(name string) bool { return identity.IsReserved(name) && name != user.AllAuthenticated }

// themselves returns the user that the agent impersonates on the hub's own cluster: the
// same one. No name means something else there, so none is changed, refused or left
// out; the hub has authenticated all of them.
func themselves(u user.Info) (transport.ImpersonationConfig, error) {
	config := transport.ImpersonationConfig{UserName: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}
	return config, checkValues(u)
}

// impersonation returns the user that the agent impersonates for a user of the hub. A
// reserved user name is an error; reserved groups are left out: an administrator of the
// hub is not refused, and has the rights of their other groups. allowed are the
// reserved names that the cluster's owner allows.
func impersonation(u user.Info, allowed []string) (transport.ImpersonationConfig, error) {
	config := transport.ImpersonationConfig{UserName: u.GetName(), UID: u.GetUID(), Extra: u.GetExtra()}
	if err := checkValues(u); err != nil {
		return transport.ImpersonationConfig{}, err
	}
	if reserved(u.GetName()) && !slices.Contains(allowed, u.GetName()) {
		return transport.ImpersonationConfig{}, fmt.Errorf("user %q means something to the control plane of this cluster and is not asserted here, unless its owner allows it (allowedReservedNames in ConfigMap cluster-proxy-owner-policy)", u.GetName())
	}
	for _, group := range u.GetGroups() {
		if isAsserted(group, allowed) {
			config.Groups = append(config.Groups, group)
		}
	}
	return config, nil
}

func isAsserted(group string, allowed []string) bool {
	return !reserved(group) || slices.Contains(allowed, group)
}

// leftOut returns the groups of a user of the hub that a cluster is not told of. Service accounts'
// have another name there.
func leftOut(groups, allowed []string) []string {
	return slices.DeleteFunc(slices.Clone(groups), func(group string) bool {
		return isAsserted(identity.OnManagedCluster(group), allowed)
	})
}

// checkValues refuses values that a header would not carry unchanged. A trailing space
// is lost on the way, and with it the difference from another name.
func checkValues(u user.Info) error {
	values := append([]string{u.GetName()}, u.GetGroups()...)
	if u.GetUID() != "" {
		values = append(values, u.GetUID())
	}
	for _, value := range values {
		if value == "" || value != strings.TrimSpace(value) || !httpguts.ValidHeaderFieldValue(value) {
			return fmt.Errorf("the user, uid or group %q cannot be asserted: it is empty, or has spaces around it or control characters", value)
		}
	}
	for key, list := range u.GetExtra() {
		for _, value := range append([]string{key}, list...) {
			if value != strings.TrimSpace(value) || !httpguts.ValidHeaderFieldValue(value) {
				return fmt.Errorf("the extra %q cannot be asserted: it has spaces around it or control characters", key)
			}
		}
	}
	return nil
}
