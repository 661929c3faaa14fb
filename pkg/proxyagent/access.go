package proxyagent

import (
	"context"

	"golang.org/x/sync/errgroup"

	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/apihandler"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/oidc"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

// startAccess starts what the handler asks about identities.
func (a *Agent) startAccess(serving context.Context, group *errgroup.Group) apihandler.Access {
	owner := ownerpolicy.NewFolder(a.options.OwnerPolicy, a.registry)
	owner.Load()
	group.Go(func() error { return owner.Run(serving) })
	access := apihandler.Access{Owner: owner.Policy, NoHubUsers: !a.options.EnableImpersonation, OnHub: a.options.OnHub}
	if a.options.OIDC.IssuerURL != "" {
		provider := oidc.New(a.options.OIDC)
		group.Go(func() error { return provider.Run(serving) })
		access.OIDC = provider
	}
	return access
}

// capped refuses new end-to-end connections to the kube-apiserver, whose requests the
// agent cannot see, as soon as the owner caps anything. The handler still accepts
// connections, since it checks each request.
func capped(destinations policy.Policy, owner func() (ownerpolicy.Policy, error)) decision {
	return func(network, address string) (policy.Target, error) {
		target, err := destinations.Target(network, address)
		if err != nil || target.Handler {
			return target, err
		}
		if caps, err := owner(); err != nil || caps.Caps() {
			return policy.Target{}, &policy.Denied{Network: network, Address: address, Reason: "owner"}
		}
		return target, nil
	}
}
