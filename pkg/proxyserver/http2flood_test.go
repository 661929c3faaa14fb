package proxyserver

import (
	"bytes"
	"crypto/tls"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// TestFloodsOfFrames sends on one connection with an agent's certificate what
// HTTP/2 lets a peer send for nothing. The server must end that connection, or be
// slow for it alone: another cluster is served meanwhile.
func TestFloodsOfFrames(t *testing.T) {
	const frames = 20_000
	var headers bytes.Buffer
	encoder := hpack.NewEncoder(&headers)
	for _, field := range [][2]string{
		{":method", "POST"}, {":scheme", "https"}, {":path", "/AgentService/Connect"}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {"agentid", "evil"}, {"agentidentifiers", "host=evil"},
	} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			t.Fatal(err)
		}
	}
	open := func(f *http2.Framer, i int) error {
		return f.WriteHeaders(http2.HeadersFrameParam{StreamID: uint32(2*i + 1), BlockFragment: headers.Bytes(), EndHeaders: true})
	}
	for _, test := range []struct {
		name string
		send func(f *http2.Framer, i int) error
	}{
		{"PING", func(f *http2.Framer, _ int) error { return f.WritePing(false, [8]byte{}) }},
		{"SETTINGS", func(f *http2.Framer, _ int) error { return f.WriteSettings() }},
		{"streams", open},
		{"streams that are reset", func(f *http2.Framer, i int) error {
			if err := open(f, i); err != nil {
				return err
			}
			return f.WriteRSTStream(uint32(2*i+1), http2.ErrCodeCancel)
		}},
		{"CONTINUATION", func(f *http2.Framer, i int) error {
			if i == 0 {
				return f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: headers.Bytes()})
			}
			return f.WriteContinuation(1, false, nil)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := startHub(t, withKonnectivityAgents)
			h.carrierAgent(t, agentSpec{cluster: "cluster1"}, 2)
			config := h.tlsFor(t, h.agentCA, identity.AgentCommonName("evil"))
			config.NextProtos = []string{"h2"}
			conn, err := tls.Dial("tcp", h.Addrs().Agent.String(), config)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			sent := make(chan int, 1)
			go func() { sent <- sendFrames(conn, frames, test.send) }()
			dialer := h.dialer(t)
			began, dials := time.Now(), 0
			for n := -1; n < 0; dials++ {
				bystander, err := dialer.DialContext(t.Context(), "tcp", "cluster1:443")
				if err != nil {
					t.Fatalf("another cluster beside the flood: %v", err)
				}
				exchange(t, bystander, "x", "cluster1:x")
				_ = bystander.Close()
				select {
				case n = <-sent:
					t.Logf("%d of %d frames were taken; %d dials beside them took %s each", n, frames, dials+1, time.Since(began)/time.Duration(dials+1))
				default:
				}
			}
			// The server may still be ending those that made room.
			eventually(t, "few streams of agents are open", func() bool { return h.backends() <= 16 })
		})
	}
}

// sendFrames sends until the server ends the connection, or takes nothing for a
// while. It reads nothing, as who floods does not.
func sendFrames(conn net.Conn, n int, send func(f *http2.Framer, i int) error) (sent int) {
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		return 0
	}
	f := http2.NewFramer(conn, conn)
	f.AllowIllegalWrites = true
	if f.WriteSettings() != nil {
		return 0
	}
	for sent < n {
		if send(f, sent) != nil {
			return sent
		}
		sent++
	}
	return sent
}
