package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
)

func (o childOptions) listenRelay() (net.Listener, error) {
	serverTLS, _, err := certFiles(o.dir).configs()
	if err != nil {
		return nil, err
	}
	l, err := tls.Listen("tcp", o.listen, serverTLS)
	if err == nil {
		fmt.Println(l.Addr())
	}
	return l, err
}

// relay is one process of the bare relay: it takes TLS connections and copies
// each to a connection of its own, which is TLS for the hub's half and plain
// TCP for the edge's half.
func (o childOptions) relay(l net.Listener) error {
	_, clientTLS, err := certFiles(o.dir).configs()
	if err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			var next net.Conn
			var err error
			if o.role == "hub" {
				next, err = tls.Dial("tcp", o.to, clientTLS)
			} else {
				next, err = net.Dial("tcp", o.to)
			}
			if err != nil {
				return
			}
			defer next.Close()
			relay(conn, next)
		}()
	}
}

func relay(a, b net.Conn) {
	var wg sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		wg.Go(func() {
			_, _ = io.CopyBuffer(struct{ io.Writer }{way[1]}, struct{ io.Reader }{way[0]}, make([]byte, 64<<10))
			if half, ok := way[1].(interface{ CloseWrite() error }); ok {
				_ = half.CloseWrite()
			}
		})
	}
	wg.Wait()
}
