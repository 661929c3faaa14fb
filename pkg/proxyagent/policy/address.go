package policy

import (
	"fmt"
	"net/netip"
)

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
