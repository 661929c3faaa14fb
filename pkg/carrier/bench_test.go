package carrier

import (
	"io"
	"net"
	"testing"

	"open-cluster-management.io/cluster-proxy/test/testkit/transport"
)

// bareRelay is client → TLS → relay → TLS → relay → TCP, all of it
// io.CopyBuffer with 64 KiB: the limit that carriers are measured against.
func bareRelay(t testing.TB, address string) net.Conn {
	join := func(a, b net.Conn) {
		move := func(dst, src net.Conn, done chan<- struct{}) {
			_, _ = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 64<<10))
			_ = closeWrite(dst)
			close(done)
		}
		one, two := make(chan struct{}), make(chan struct{})
		go move(a, b, one)
		go move(b, a, two)
		<-one
		<-two
		_ = a.Close()
		_ = b.Close()
	}
	target, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	client, hubIn := transport.TLS(t)
	hubOut, agent := transport.TLS(t)
	go join(hubIn, hubOut)
	go join(agent, target)
	return client
}

// paths opens a connection to the target over each of the two.
func paths(b *testing.B, address string, run func(b *testing.B, cn net.Conn)) {
	b.Run("bare", func(b *testing.B) {
		cn := bareRelay(b, address)
		run(b, cn)
		_ = cn.Close()
	})
	b.Run("carrier", func(b *testing.B) {
		client, _ := chain(b, transport.TLS, relayTo(address))
		cn := mustOpen(b, client)
		run(b, cn)
		_ = cn.Close()
	})
}

const bulk = 1 << 20

func BenchmarkWrite(b *testing.B) {
	address := listen(b, func(nc net.Conn) {
		_, _ = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{nc}, make([]byte, 64<<10))
		_ = nc.Close()
	})
	buf := make([]byte, bulk)
	paths(b, address, func(b *testing.B, cn net.Conn) {
		b.SetBytes(bulk)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := cn.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkRead(b *testing.B) {
	address := listen(b, func(nc net.Conn) {
		buf := make([]byte, 64<<10)
		for {
			if _, err := nc.Write(buf); err != nil {
				_ = nc.Close()
				return
			}
		}
	})
	buf := make([]byte, bulk)
	paths(b, address, func(b *testing.B, cn net.Conn) {
		b.SetBytes(bulk)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := io.ReadFull(cn, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkExchange(b *testing.B) {
	buf := make([]byte, 256)
	paths(b, listen(b, echo), func(b *testing.B, cn net.Conn) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := cn.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(cn, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkDial is a warm dial, one byte there and back, and a clean end.
func BenchmarkDial(b *testing.B) {
	address := listen(b, echo)
	one := make([]byte, 1)
	b.Run("bare", func(b *testing.B) {
		for b.Loop() {
			cn := bareRelay(b, address)
			_, _ = cn.Write(one)
			_, _ = io.ReadFull(cn, one)
			_ = cn.Close()
		}
	})
	b.Run("carrier", func(b *testing.B) {
		client, _ := chain(b, transport.TLS, relayTo(address))
		b.ReportAllocs()
		for b.Loop() {
			cn := mustOpen(b, client)
			_, _ = cn.Write(one)
			_, _ = io.ReadFull(cn, one)
			_ = cn.CloseWrite()
			if _, err := io.ReadAll(cn); err != nil {
				b.Fatal(err)
			}
		}
	})
}
