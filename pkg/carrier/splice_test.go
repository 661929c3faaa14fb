package carrier

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// chain is client → carrier → splice → carrier → target handler.
func chain(t testing.TB, make transport.Maker, target HandlerFunc) (client *Carrier, legs [3]*Carrier) {
	t.Helper()
	hubOut, agent := ends(t, make, target)
	client, hubIn := ends(t, make, func(ctx context.Context, p *Pending) {
		b, err := hubOut.Open(ctx, p.OpenRequest)
		if err != nil {
			_ = p.Refuse(err)
			return
		}
		a, err := p.Accept(Endpoints{Local: b.LocalAddr().String(), Remote: b.RemoteAddr().String()})
		if err != nil {
			b.Abort(err)
			return
		}
		Splice(a, b, func(int64, int64) {})
	})
	return client, [3]*Carrier{hubIn, hubOut, agent}
}

// relayTo is an agent's handler.
func relayTo(address string) HandlerFunc {
	return func(ctx context.Context, p *Pending) {
		var d net.Dialer
		target, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			_ = p.Refuse(&Error{Code: Refused, Message: err.Error()})
			return
		}
		cn, err := p.Accept(Endpoints{Local: target.LocalAddr().String(), Remote: address})
		if err != nil {
			_ = target.Close()
			return
		}
		_ = Relay(cn, target)
	}
}

func listen(t testing.TB, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { serve(nc) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return l.Addr().String()
}

func echo(nc net.Conn) {
	_, _ = io.Copy(nc, nc)
	_ = nc.Close()
}

func TestChainCarriesManyConnectionsInTurn(t *testing.T) {
	for name, make := range map[string]transport.Maker{"TCP": transport.TCP, "TLS": transport.TLS} {
		t.Run(name, func(t *testing.T) {
			client, _ := chain(t, make, relayTo(listen(t, echo)))
			for i := range 30 {
				label := fmt.Sprintf("cluster%d", i)
				cn := mustOpen(t, client)
				var wg sync.WaitGroup
				wg.Go(func() {
					w := carriertest.NewWriter(cn, label)
					for _, n := range []int{0, 1, 100, 4096, 65532, 200000, 7} {
						if err := w.WriteRecord(n); err != nil {
							t.Error(err)
						}
					}
					if err := cn.CloseWrite(); err != nil {
						t.Error(err)
					}
				})
				if n, err := carriertest.Check(cn, label); n != 7 || err != nil {
					t.Errorf("%d records, error %v, want 7 and none", n, err)
				}
				wg.Wait()
				_ = cn.Close()
			}
		})
	}
}

// mustOpen waits, with the hub's leg still busy ending the last connection.
func mustOpen(t testing.TB, c *Carrier) *Conn {
	t.Helper()
	for {
		cn, err := c.Open(t.Context(), request)
		if CodeOf(err) == Overloaded {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return cn
	}
}

func TestChainPassesErrorsOn(t *testing.T) {
	client, _ := chain(t, transport.TLS, func(_ context.Context, p *Pending) {
		_ = p.Refuse(&Error{Code: Denied, Message: "link-local"})
	})
	_, err := client.Open(t.Context(), request)
	var e *Error
	if !errors.As(err, &e) || e.Code != Denied || e.Message != "link-local" {
		t.Errorf("error %v, want %v: link-local", err, Denied)
	}
}

func TestChainPassesAbnormalEndsOn(t *testing.T) {
	reset := func(nc net.Conn) {
		_, _ = io.ReadFull(nc, make([]byte, 1))
		_ = nc.(*net.TCPConn).SetLinger(0)
		_ = nc.Close()
	}
	t.Run("target resets", func(t *testing.T) {
		client, _ := chain(t, transport.TLS, relayTo(listen(t, reset)))
		cn := mustOpen(t, client)
		_, _ = cn.Write([]byte("x"))
		if _, err := io.ReadAll(cn); CodeOf(err) != CutOff {
			t.Errorf("error %v, want %v", err, CutOff)
		}
	})
	for leg, name := range []string{"hub's client leg dies", "hub's agent leg dies", "agent dies"} {
		t.Run(name, func(t *testing.T) {
			client, legs := chain(t, transport.TLS, relayTo(listen(t, echo)))
			cn := mustOpen(t, client)
			_, _ = cn.Write([]byte("x"))
			_, _ = io.ReadFull(cn, make([]byte, 1))
			_ = legs[leg].Close()
			if _, err := io.ReadAll(cn); CodeOf(err) != CutOff {
				t.Errorf("error %v, want %v", err, CutOff)
			}
			for _, c := range legs {
				<-c.Done()
			}
		})
	}
	t.Run("client dies", func(t *testing.T) {
		ended := make(chan error, 1)
		client, legs := chain(t, transport.TLS, relayTo(listen(t, func(nc net.Conn) {
			_, err := io.Copy(io.Discard, nc)
			ended <- err
			_ = nc.Close()
		})))
		cn := mustOpen(t, client)
		_, _ = cn.Write([]byte("x"))
		_ = client.Close()
		if err := <-ended; err == nil {
			t.Error("the target saw a clean end")
		}
		for _, c := range legs {
			<-c.Done()
		}
	})
}
