package suite

import (
	"io"
	"net"
	"testing"
	"time"
)

// DelayedListener is a listener whose connections go on to a place that is a
// round trip away. It ends with the test; without one, with the process.
func DelayedListener(t *testing.T, to string, roundTrip time.Duration) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	if t != nil {
		t.Cleanup(func() { listener.Close() })
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				continue
			}
			go delay(server, client, roundTrip/2)
			go delay(client, server, roundTrip/2)
		}
	}()
	return listener.Addr().String()
}

type late struct {
	due  time.Time
	data []byte
}

// delay copies, each byte a while after it came; the way is long, not narrow.
func delay(to, from net.Conn, oneWay time.Duration) {
	way := make(chan late, 4096)
	go func() {
		defer close(way)
		for {
			buf := make([]byte, 32<<10)
			n, err := from.Read(buf)
			if n > 0 {
				way <- late{time.Now().Add(oneWay), buf[:n]}
			}
			if err != nil {
				return
			}
		}
	}()
	for chunk := range way {
		<-time.After(time.Until(chunk.due))
		if _, err := to.Write(chunk.data); err != nil {
			break
		}
	}
	to.Close()
	from.Close()
	_, _ = io.Copy(io.Discard, from)
}
