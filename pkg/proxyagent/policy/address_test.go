package policy

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
)

func TestCheckAddresses(t *testing.T) {
	for _, allowed := range [][]string{
		{"10.96.0.10"}, {"172.20.3.4"}, {"192.168.1.1"}, {"192.0.2.2"}, {"fd00:1234::10"}, {"2001:db8::1"},
		{"10.96.0.10", "fd00:1234::10"}, {"::ffff:10.96.0.10"}, {"8.8.8.8"}, {"240.0.0.5"}, {"254.255.255.255"},
	} {
		if err := CheckAddresses("x", parse(allowed)); err != nil {
			t.Errorf("%v: %v", allowed, err)
		}
	}
	for _, denied := range []struct {
		reason    string
		addresses []string
	}{
		{"no-address", nil},
		{"loopback", []string{"127.0.0.1"}}, {"loopback", []string{"127.8.9.1"}}, {"loopback", []string{"::1"}},
		{"loopback", []string{"::ffff:127.0.0.1"}},
		{"unspecified", []string{"0.0.0.0"}}, {"unspecified", []string{"::"}}, {"this network", []string{"0.1.2.3"}},
		{"link-local", []string{"169.254.169.254"}}, {"link-local", []string{"169.254.170.2"}}, {"link-local", []string{"::ffff:169.254.169.254"}},
		{"zone", []string{"fe80::1%eth0"}}, {"link-local", []string{"fe80::1"}}, {"link-local", []string{"febf::1"}},
		{"multicast", []string{"224.0.0.1"}}, {"multicast", []string{"ff02::1"}},
		{"broadcast", []string{"255.255.255.255"}}, {"broadcast", []string{"::ffff:255.255.255.255"}},
		{"metadata", []string{"168.63.129.16"}}, {"metadata", []string{"100.100.100.200"}}, {"metadata", []string{"fd00:ec2::254"}},
		{"metadata", []string{"fd20:ce::254"}}, {"metadata", []string{"192.0.0.192"}},
		{"embedded IPv4", []string{"::7f00:1"}}, {"embedded IPv4", []string{"64:ff9b::a9fe:a9fe"}}, {"embedded IPv4", []string{"2002:7f00:1::"}},
		{"loopback", []string{"10.96.0.10", "127.0.0.1"}},
	} {
		err := CheckAddresses("x", parse(denied.addresses))
		var d *Denied
		if !errors.As(err, &d) || d.Reason != denied.reason {
			t.Errorf("%v: %v, want denied for %q", denied.addresses, err, denied.reason)
		}
	}
	if err := CheckAddresses("x", []netip.Addr{{}}); err == nil {
		t.Error("the zero address is allowed")
	}
}

func parse(in []string) []netip.Addr {
	var out []netip.Addr
	for _, address := range in {
		out = append(out, netip.MustParseAddr(address))
	}
	return out
}

// FuzzCheckAddresses looks for an address that passes and that the machine
// would take for one of its own or its link's, in whatever form it is written.
func FuzzCheckAddresses(f *testing.F) {
	f.Add([]byte{127, 0, 0, 1})
	f.Add([]byte{169, 254, 169, 254})
	mapped := netip.MustParseAddr("::ffff:169.254.169.254").As16()
	f.Add(mapped[:])
	nat64 := netip.MustParseAddr("64:ff9b::127.0.0.1").As16()
	f.Add(nat64[:])
	f.Fuzz(func(t *testing.T, raw []byte) {
		address, ok := netip.AddrFromSlice(raw)
		if !ok || CheckAddresses("x", []netip.Addr{address}) != nil {
			return
		}
		plain := address.Unmap()
		if plain.Is6() { // the last 32 bits may not be an IPv4 address that the kernel would take out
			b := plain.As16()
			if binary.BigEndian.Uint64(b[:8]) == 0 && binary.BigEndian.Uint32(b[8:12]) == 0 {
				t.Fatalf("%v passes", address)
			}
		}
		if plain.IsLoopback() || plain.IsLinkLocalUnicast() || plain.IsMulticast() || plain.IsUnspecified() || plain == netip.MustParseAddr("168.63.129.16") {
			t.Fatalf("%v passes", address)
		}
	})
}
