package apihandler

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/connect"
	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

// resolveTimeout and dialTimeout bound one step each; a Service is inside the
// cluster.
const (
	resolveTimeout = 5 * time.Second
	dialTimeout    = 5 * time.Second
)

// Resolver resolves names of Services; *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// serviceDialer resolves, checks, and dials, in this order. It dials the address that
// was checked, not the name, so DNS answers that change in between have no effect.
type serviceDialer struct {
	resolver Resolver
	// connect dials an IP address and port.
	connect dialContext
	tcp     dial.TCP // of the connections
}

func (d *serviceDialer) dial(ctx context.Context, _, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("parsing the address of a Service %q: %w", address, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return nil, fmt.Errorf("port %q of a Service is not a number", port)
	}
	checked, err := d.resolve(ctx, host)
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, ip := range checked {
		conn, err := d.connect(ctx, "tcp", netip.AddrPortFrom(ip, uint16(number)).String())
		if err == nil {
			return d.tcp.Tune(conn), nil
		}
		problems = append(problems, err)
	}
	return nil, errors.Join(problems...)
}

// resolve returns addresses that may be dialed.
func (d *serviceDialer) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	addresses, err := d.resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("resolving the Service %q: %w", host, err)
	}
	return addresses, policy.CheckAddresses(host, addresses)
}

// port returns the number of the port that a request asks for: by number, by name, or
// the Service's only one. Names are looked up in the cluster's DNS, which has those of
// every Service, so the agent needs no right to read Services.
func (d *serviceDialer) port(ctx context.Context, s agentapi.Service) (string, error) {
	if _, err := strconv.Atoi(s.Port); err == nil {
		return s.Port, nil
	}
	protocol := "tcp"
	if s.Port == "" {
		protocol = "" // asks for the records of all ports
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	_, records, err := d.resolver.LookupSRV(ctx, s.Port, protocol, hostOf(s))
	var unknown *net.DNSError
	if err != nil && !(errors.As(err, &unknown) && unknown.IsNotFound) {
		return "", fmt.Errorf("resolving port %q of the Service %q: %w", s.Port, hostOf(s), err)
	}
	numbers := map[uint16]bool{}
	for _, record := range records {
		numbers[record.Port] = true
	}
	switch {
	case len(numbers) == 1:
		return strconv.Itoa(int(records[0].Port)), nil
	case len(numbers) > 1:
		return "", &badRequest{fmt.Sprintf("the Service %q has %d such ports: name one of them", hostOf(s), len(numbers))}
	case s.Port == "" && s.Protocol == "https":
		// Only ports with a name have records. Without one it is the protocol's.
		return "443", nil
	case s.Port == "" && s.Protocol == "http":
		return "80", nil
	}
	return "", &badRequest{fmt.Sprintf("the Service %q has no port %q that the cluster's DNS knows: give its number", hostOf(s), s.Port)}
}

// connect makes a request one connection to a Service, which is not looked into.
func (p *serviceProxy) connect(w http.ResponseWriter, r *http.Request, address string) {
	target, err := p.dialer.dial(r.Context(), "tcp", address)
	if err != nil {
		p.writeError(w, r, err)
		return
	}
	defer target.Close()
	conn, err := connect.Accept(w, r)
	if errors.Is(err, http.ErrAbortHandler) {
		return // the client is gone
	}
	if err != nil {
		p.writeError(w, r, err)
		return
	}
	defer conn.Close()
	_ = connect.Join(conn, target) // both ends know
}

// deniedReason is why the policy denies, in a few words fit for a metric; empty
// if it is not the policy that failed.
func deniedReason(err error) string {
	var unlisted *notExposed
	if errors.As(err, &unlisted) {
		return "not-exposed"
	}
	var denied *policy.Denied
	if errors.As(err, &denied) {
		return denied.Reason
	}
	return ""
}
