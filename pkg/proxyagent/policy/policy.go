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

// Target is what an agent dials, over TCP.
type Target struct {
	Address string // host:port
	// Handler says that this is the agent's own handler. A connection that comes on a
	// carrier need not be dialed then.
	Handler bool
}

// Target returns what to dial for a request, or a *Denied.
func (p Policy) Target(network, address string) (Target, error) {
	if network != "tcp" {
		return Target{}, &Denied{network, address, "network"}
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || port == "" {
		return Target{}, &Denied{network, address, "address"}
	}
	switch {
	case host == identity.HandlerHost(p.Cluster) && port == identity.HandlerPort:
		return Target{Address: p.Handler, Handler: true}, nil
	case host != identity.HandlerHost(p.Cluster) && slices.Contains(identity.Hosts(p.Cluster, p.AgentNamespace), host):
		return Target{Address: p.KubeAPIServer}, nil
	}
	return Target{}, &Denied{network, address, "destination"}
}
