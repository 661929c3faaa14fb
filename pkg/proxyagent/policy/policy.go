package policy

import (
	"fmt"
	"net"
	"net/netip"
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

// neverDialed are ranges that no Service has a business in. Those that Go has a
// word for (loopback, link-local, multicast, unspecified) are looked at by it.
var neverDialed = []struct {
	prefix netip.Prefix
	what   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "this network"},
	// The rest of 240.0.0.0/4 is reserved on paper alone: GKE has Services and pods there.
	{netip.MustParsePrefix("255.255.255.255/32"), "broadcast"},
	// Metadata services of clouds that are not link-local: Azure, Alibaba,
	// Oracle, AWS, Google.
	{netip.MustParsePrefix("168.63.129.16/32"), "metadata"},
	{netip.MustParsePrefix("100.100.100.200/32"), "metadata"},
	{netip.MustParsePrefix("192.0.0.192/32"), "metadata"},
	{netip.MustParsePrefix("fd00:ec2::/32"), "metadata"},
	{netip.MustParsePrefix("fd20:ce::254/128"), "metadata"},
	// An address with an IPv4 address inside could carry any of the above.
	{netip.MustParsePrefix("::/96"), "embedded IPv4"},
	{netip.MustParsePrefix("64:ff9b::/96"), "embedded IPv4"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "embedded IPv4"},
	{netip.MustParsePrefix("2001::/32"), "embedded IPv4"},
	{netip.MustParsePrefix("2002::/16"), "embedded IPv4"},
}

// CheckAddresses reports whether what a name was resolved to may be dialed: at
// least one address, and none that is never dialed. One bad address spoils the
// answer, because a Service has no such mixture. The error is a *Denied.
func CheckAddresses(name string, addresses []netip.Addr) error {
	if len(addresses) == 0 {
		return &Denied{Network: "tcp", Address: name, Reason: "no-address"}
	}
	for _, address := range addresses {
		if what := never(address); what != "" {
			return &Denied{Network: "tcp", Address: fmt.Sprintf("%s (%s)", name, address), Reason: what}
		}
	}
	return nil
}

// never says why an address is never dialed, or nothing.
func never(address netip.Addr) string {
	address = address.Unmap()
	switch {
	case !address.IsValid():
		return "invalid"
	case address.Zone() != "":
		return "zone"
	case address.IsLoopback():
		return "loopback"
	case address.IsUnspecified():
		return "unspecified"
	case address.IsLinkLocalUnicast():
		return "link-local"
	case address.IsMulticast():
		return "multicast"
	}
	for _, n := range neverDialed {
		if n.prefix.Contains(address) {
			return n.what
		}
	}
	return ""
}
