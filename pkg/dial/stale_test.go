package dial

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// dnsServer is a DNS server for one address.
type dnsServer struct {
	address string
	mode    atomic.Pointer[string]
	host    atomic.Uint32 // the name has the address 127.0.0.1, and more by that
}

// slowDNS is longer than a dial by name is waited for alone, and shorter than resolvers ask again.
const slowDNS = staleAfter + time.Second

func (s *dnsServer) set(mode string) { s.mode.Store(&mode) }

func startDNS(t *testing.T) *dnsServer {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { packets.Close() })
	s := &dnsServer{address: packets.LocalAddr().String()}
	go func() {
		for buf := make([]byte, 4096); ; {
			n, from, err := packets.ReadFrom(buf)
			if err != nil {
				return
			}
			var query dnsmessage.Message
			if query.Unpack(buf[:n]) != nil || *s.mode.Load() == "silent" {
				continue
			}
			answer := dnsmessage.Message{Header: dnsmessage.Header{ID: query.ID, Response: true}, Questions: query.Questions}
			switch *s.mode.Load() {
			case "fails":
				answer.RCode = dnsmessage.RCodeServerFailure
			case "knows of none":
				answer.RCode = dnsmessage.RCodeNameError
			default:
				if question := query.Questions[0]; question.Type == dnsmessage.TypeA {
					address := [4]byte{127, 0, 0, byte(1 + s.host.Load())}
					answer.Answers = []dnsmessage.Resource{{
						Header: dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class},
						Body:   &dnsmessage.AResource{A: address},
					}}
				}
			}
			packed, err := answer.Pack()
			if err != nil {
				return
			}
			delay := time.Duration(0)
			if *s.mode.Load() == "answers late" {
				delay = slowDNS
			}
			time.AfterFunc(delay, func() { _, _ = packets.WriteTo(packed, from) })
		}
	}()
	return s
}

// resolver asks the server.
func (s *dnsServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", s.address)
	}}
}

// TestSlowDNSOfAMovedName has a name get another address, while DNS takes longer to answer than
// the old address is spared.
func TestSlowDNSOfAMovedName(t *testing.T) {
	t.Parallel()
	dns := startDNS(t)
	dns.set("answers")
	before, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	_, port, _ := net.SplitHostPort(before.Addr().String())
	var dialer StaleDialer
	dialer.Resolver = dns.resolver()
	dial := func() (net.Conn, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 4*staleAfter)
		defer cancel()
		return dialer.DialContext(ctx, net.JoinHostPort("hub.example.", port))
	}
	conn, err := dial()
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	before.Close()
	after, err := net.Listen("tcp", net.JoinHostPort("127.0.0.2", port))
	if err != nil {
		t.Skip("this machine has one loopback address only: ", err)
	}
	defer after.Close()
	dns.host.Store(1)
	dns.set("answers late")
	for range 2 {
		if conn, err = dial(); err != nil {
			t.Fatalf("after the name has moved: %v", err)
		}
		if got := conn.RemoteAddr().String(); got != after.Addr().String() {
			t.Errorf("connected to %s, want %s", got, after.Addr())
		}
		conn.Close()
	}
}

func TestNamesOutliveTheirDNS(t *testing.T) {
	dns := startDNS(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	address := net.JoinHostPort("hub.example.", port)
	var dialer StaleDialer
	dialer.Resolver = dns.resolver()
	dial := func(mode string) error {
		t.Helper()
		dns.set(mode)
		ctx, cancel := context.WithTimeout(t.Context(), 4*staleAfter)
		defer cancel()
		conn, err := dialer.DialContext(ctx, address)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}
	var unresolved *net.DNSError
	if err := dial("fails"); !errors.As(err, &unresolved) {
		t.Errorf("a name that was never resolved: %v", err)
	}
	if err := dial("answers"); err != nil {
		t.Fatal(err)
	}
	if err := dial("fails"); err != nil {
		t.Errorf("DNS that fails: %v", err)
	}
	began := time.Now()
	if err := dial("silent"); err != nil || time.Since(began) > 2*staleAfter {
		t.Errorf("DNS that is silent: %v after %s", err, time.Since(began))
	}
	if err := dial("knows of none"); !errors.As(err, &unresolved) || !unresolved.IsNotFound {
		t.Errorf("a name that is gone: %v", err)
	}
	listener.Close()
	if err := dial("fails"); !errors.As(err, &unresolved) {
		t.Errorf("an address that is gone too: %v, want what DNS said", err)
	}
}
