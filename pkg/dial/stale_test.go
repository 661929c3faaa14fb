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
}

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
					answer.Answers = []dnsmessage.Resource{{
						Header: dnsmessage.ResourceHeader{Name: question.Name, Class: question.Class},
						Body:   &dnsmessage.AResource{A: [4]byte{127, 0, 0, 1}},
					}}
				}
			}
			packed, err := answer.Pack()
			if err == nil {
				_, err = packets.WriteTo(packed, from)
			}
			if err != nil {
				return
			}
		}
	}()
	return s
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
	dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "udp", dns.address)
	}}
	dial := func(mode string) error {
		t.Helper()
		dns.set(mode)
		ctx, cancel := context.WithTimeout(t.Context(), 4*byNameTimeout)
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
	if err := dial("silent"); err != nil || time.Since(began) > 2*byNameTimeout {
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
