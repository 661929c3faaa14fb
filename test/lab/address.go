package lab

import (
	"net"
	"net/netip"
)

// OwnAddress is an IPv4 address of this machine that is not loopback: what is
// sent there does not leave it, and Kubernetes takes it for a pod's. It is
// invalid if there is none.
func OwnAddress() netip.Addr {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return netip.Addr{}
	}
	for _, address := range addresses {
		if prefix, err := netip.ParsePrefix(address.String()); err == nil && prefix.Addr().Is4() && prefix.Addr().IsGlobalUnicast() {
			return prefix.Addr()
		}
	}
	return netip.Addr{}
}
