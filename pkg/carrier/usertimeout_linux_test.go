package carrier

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// impatient is short, and as long as the kernel lets probes be apart.
const impatient = time.Second

// tuned makes transports that give their peers up soon.
func tuned(make transport.Maker) transport.Maker {
	return func(t testing.TB) (net.Conn, net.Conn) {
		a, b := make(t)
		return dial.TCP{UserTimeout: impatient}.Tune(a), dial.TCP{UserTimeout: impatient}.Tune(b)
	}
}

func tunedTLS(t testing.TB) (net.Conn, net.Conn) { return transport.Secure(t, tuned(transport.TCP)) }

// wait waits for real time: kernels have no other.
func wait(t *testing.T, d time.Duration) {
	t.Helper()
	pause := time.NewTimer(d)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-t.Context().Done():
	}
}

// TestReaderThatPausesGetsEveryByte lets readers pause for several times the
// user timeout. The bytes on their way fit into the sockets' buffers, so that nobody
// waits in a Write, or they do not. Linux would end connections of either kind.
func TestReaderThatPausesGetsEveryByte(t *testing.T) {
	t.Parallel()
	data := bytes.Repeat([]byte("0123456789abcdef"), 24<<20/16)
	type paused struct {
		name   string
		reader net.Conn
		size   int
	}
	var all []paused
	var wg sync.WaitGroup
	for name, hop := range map[string]transport.Maker{
		"TCP": tuned(transport.TCP), "TLS": tunedTLS,
		"a carrier over TCP": overCarrier(tuned(transport.TCP)), "a carrier over TLS": overCarrier(tunedTLS),
		"server and agent to the client": throughChain(tunedTLS),
		"server and agent to the target": reversed(throughChain(tunedTLS)),
	} {
		for _, size := range []int{1, 300 << 10, 1 << 20, len(data)} {
			reader, writer := hop(t)
			defer reader.Close()
			defer writer.Close()
			all = append(all, paused{name, reader, size})
			wg.Go(func() {
				if _, err := writer.Write(data[:size]); err != nil {
					t.Errorf("writing %d bytes over %s to a reader that pauses: %v", size, name, err)
				}
			})
		}
	}
	wait(t, 3*impatient)
	for _, p := range all {
		wg.Go(func() {
			got := &match{want: data}
			if n, err := io.CopyN(got, p.reader, int64(p.size)); err != nil {
				t.Errorf("%d of %d bytes arrived over %s: %v", n, p.size, p.name, err)
			}
		})
	}
	wg.Wait()
}

// match is a writer that takes the bytes it wants only.
type match struct{ want []byte }

func (m *match) Write(p []byte) (int, error) {
	if len(p) > len(m.want) || !bytes.Equal(p, m.want[:len(p)]) {
		return 0, errors.New("a wrong byte arrived")
	}
	m.want = m.want[len(p):]
	return len(p), nil
}

func overCarrier(make transport.Maker) transport.Maker {
	return func(t testing.TB) (net.Conn, net.Conn) { return opened(t, make) }
}

func reversed(make transport.Maker) transport.Maker {
	return func(t testing.TB) (net.Conn, net.Conn) {
		a, b := make(t)
		return b, a
	}
}

// throughChain is a client's connection through server and agent, and its
// target's end.
func throughChain(make transport.Maker) transport.Maker {
	return func(t testing.TB) (net.Conn, net.Conn) {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		client, _ := chain(t, make, relayTo(l.Addr().String()))
		cn := mustOpen(t, client)
		target, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return cn, target
	}
}

// TestSilentTransportCutsCarriersOff is about those who wait on either side of a
// relay whose other leg has gone silent.
func TestSilentTransportCutsCarriersOff(t *testing.T) {
	for name, make := range map[string]transport.Maker{"TCP": tuned(transport.TCP), "TLS": tunedTLS} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client, legs := chain(t, make, relayTo(listen(t, echo)))
			cn := mustOpen(t, client)
			_, _ = cn.Write([]byte("x"))
			_, _ = io.ReadFull(cn, []byte{0})
			carriertest.Swallow(t, legs[2].Transport()) // the agent's
			_, _ = cn.Write([]byte("x"))
			if _, err := io.ReadAll(cn); CodeOf(err) != CutOff {
				t.Errorf("reading: %v, want %s", err, CutOff)
			}
			<-legs[1].Done()
		})
	}
}
