package policy

import (
	"fmt"
	"net"
	"slices"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Policy is what one agent may dial. It must not change while it is in use.
type Policy struct {
	// Cluster is the name of the agent's own cluster.
	Cluster string
	// AgentNamespace is where the agent runs; "<cluster>.<namespace>" is
	// another name of the kube-apiserver then, as in upstream.
	AgentNamespace string
	// KubeAPIServer and Handler are the addresses to dial, host:port.
	KubeAPIServer, Handler string
}

// Denied is the error of everything that may not be dialed.
type Denied struct {
	Network, Address string
	// Reason is one of a few words, fit for a metric: "network", "address",
	// "destination" or "owner".
	Reason string
}

func (d *Denied) Error() string {
	return fmt.Sprintf("denied by policy: %s %q is not a destination of this agent (%s)", d.Network, d.Address, d.Reason)
}

// Target is the address to dial over TCP for a request, or a *Denied.
func (p Policy) Target(network, address string) (string, error) {
	if network != "tcp" {
		return "", &Denied{network, address, "network"}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return "", &Denied{network, address, "address"}
	}
	switch {
	case host == identity.HandlerHost(p.Cluster) && port == identity.HandlerPort:
		return p.Handler, nil
	case host != identity.HandlerHost(p.Cluster) && slices.Contains(identity.Hosts(p.Cluster, p.AgentNamespace), host):
		return p.KubeAPIServer, nil
	}
	return "", &Denied{network, address, "destination"}
}
