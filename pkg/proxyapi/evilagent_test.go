package proxyapi

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// enough is where an evil agent stops by itself, far behind where it should have
// been stopped.
const enough = 12 << 20

// evilAgent is an agent of which every byte is its own. It answers each request
// with what answer writes.
func (w *world) evilAgent(cluster string, h2 func(*http2.Framer, uint32) error, h1 func(io.Writer) error) {
	w.t.Helper()
	leaf := pki.Leaf{CommonName: identity.AgentCommonName(cluster), Organizations: identity.AgentOrganizations(cluster),
		DNSNames: []string{identity.HandlerHost(cluster)}, Server: true, Client: true}
	config := pkitest.Load(w.t, w.issue("evil-"+cluster, w.agentCA, leaf, w.hubCA)).ServerConfig(tls.RequireAndVerifyClientCert)
	config.NextProtos = []string{"h2", "http/1.1"}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go serveEvil(conn.(*tls.Conn), h2, h1)
		}
	}()
	w.hub.Forward(w.handlerAddress(cluster), listener.Addr().String())
}

func serveEvil(conn *tls.Conn, h2 func(*http2.Framer, uint32) error, h1 func(io.Writer) error) {
	defer conn.Close()
	if conn.Handshake() != nil {
		return
	}
	if conn.ConnectionState().NegotiatedProtocol != "h2" {
		if _, err := http.ReadRequest(bufio.NewReader(conn)); err == nil {
			_ = h1(conn)
		}
		return
	}
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	buffered := bufio.NewWriterSize(conn, 64<<10)
	framer := http2.NewFramer(buffered, conn)
	if framer.WriteSettings() != nil || buffered.Flush() != nil {
		return
	}
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		if headers, ok := frame.(*http2.HeadersFrame); ok {
			if h2(framer, headers.StreamID) != nil || buffered.Flush() != nil {
				return
			}
		}
	}
}

// headerBlock is: a status, or none, and n times a short field, which
// takes a byte each on the way and much more in memory.
func headerBlock(status string, n int) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	if status != "" {
		_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: status})
	}
	for range n {
		_ = encoder.WriteField(hpack.HeaderField{Name: "a", Value: ""})
	}
	return block.Bytes()
}

// headers writes a block in as many frames as it takes.
func headers(f *http2.Framer, id uint32, block []byte, end bool) error {
	const most = 16 << 10
	n := min(most, len(block))
	err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block[:n], EndHeaders: n == len(block), EndStream: end})
	for block = block[n:]; err == nil && len(block) > 0; block = block[n:] {
		n = min(most, len(block))
		err = f.WriteContinuation(id, n == len(block), block[:n])
	}
	return err
}

// until repeats write until it fails, or there was enough. Bytes that are expensive to
// read count for more.
func until(sent *atomic.Int64, n int, write func() error) error {
	for sent.Load() < enough {
		if err := write(); err != nil {
			return err
		}
		sent.Add(int64(n))
	}
	return io.EOF
}

// TestEvilAgent has an agent answer with headers without an end. The proxy API
// takes a bounded part of them, the client is told, and another cluster's users are
// served.
func TestEvilAgent(t *testing.T) {
	long.Test(t)
	const users, bound = 10, 128 << 20
	var sent atomic.Int64
	some := headerBlock("", 8<<10)
	status := headerBlock("200", 0)
	early := headerBlock("103", 4<<10)
	many, manyLines := headerBlock("200", 317000), []byte("HTTP/1.1 403 No\r\n"+strings.Repeat("A: b\r\n", 10<<20/6)+"\r\n")
	hints := strings.Repeat("HTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n", 100)
	for name, tc := range map[string]struct {
		h2 func(*http2.Framer, uint32) error
		h1 func(io.Writer) error
		// ok says that the answer itself is one.
		ok bool
	}{
		"10 MiB of headers": {
			h2: func(f *http2.Framer, id uint32) error {
				sent.Add(int64(len(many)))
				return headers(f, id, many, false)
			},
			h1: func(w io.Writer) error {
				n, err := w.Write(manyLines)
				sent.Add(int64(n))
				return err
			},
		},
		"headers without an end": {
			h2: func(f *http2.Framer, id uint32) error {
				if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: status}); err != nil {
					return err
				}
				return until(&sent, len(some), func() error { return f.WriteContinuation(id, false, some) })
			},
			h1: func(w io.Writer) error {
				_, _ = io.WriteString(w, "HTTP/1.1 403 No\r\n")
				return until(&sent, 6<<10, func() error { _, err := io.WriteString(w, strings.Repeat("A: b\r\n", 1<<10)); return err })
			},
		},
		"informational answers without an end": {
			h2: func(f *http2.Framer, id uint32) error {
				return until(&sent, 10*len(early), func() error { return headers(f, id, early, false) })
			},
			h1: func(w io.Writer) error {
				return until(&sent, len(hints), func() error { _, err := io.WriteString(w, hints); return err })
			},
		},
		"a trailer without an end": {
			h2: func(f *http2.Framer, id uint32) error {
				if err := headers(f, id, status, false); err != nil {
					return err
				}
				if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: some, EndStream: true}); err != nil {
					return err
				}
				return until(&sent, len(some), func() error { return f.WriteContinuation(id, false, some) })
			},
			h1: func(w io.Writer) error {
				_, _ = io.WriteString(w, "HTTP/1.1 403 No\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
				return until(&sent, 6<<10, func() error { _, err := io.WriteString(w, strings.Repeat("A: b\r\n", 1<<10)); return err })
			},
			ok: true,
		},
		"pings": {
			h2: func(f *http2.Framer, _ uint32) error {
				return until(&sent, 10*17, func() error { return f.WritePing(false, [8]byte{}) })
			},
			h1: func(io.Writer) error { return io.EOF },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t)
			w.api.User("jane", "jane")
			w.api.User("eve", "eve")
			w.api.Allow("* * clusters/proxy *", "* create clusters/stream *")
			w.agent("cluster2", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), "cluster2")
			w.evilAgent("cluster1", tc.h2, tc.h1)
			client := w.client("http/1.1")
			before := inUse()
			for _, upgrade := range []bool{false, true} {
				sent.Store(0)
				results := make(chan error, users)
				for range users {
					go func() { results <- w.meet(client, upgrade, tc.ok) }()
				}
				if code, err := w.do(client, "jane", http.MethodGet, "/cluster2/api/v1/pods", nil); code != http.StatusOK {
					t.Errorf("another cluster's user meanwhile: %d, %v, want 200", code, err)
				}
				for range users {
					if err := <-results; err != nil {
						t.Errorf("upgrade %v: %v", upgrade, err)
					}
				}
			}
			if kept := inUse() - before; kept > bound {
				t.Errorf("%d MiB stay in memory, want %d at most", kept>>20, bound>>20)
			}
		})
	}
}

// meet asks the evil agent's cluster. An answer that is not a failure is an error
// unless ok says that it may be one.
func (w *world) meet(client *http.Client, upgrade, ok bool) error {
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodPost, w.url+"/cluster1/api/v1/namespaces/a/pods/b/exec", nil)
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer eve")
	if upgrade {
		req.Header.Set("Connection", "Upgrade")
		req.Header.Set("Upgrade", "SPDY/3.1")
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	if !ok && resp.StatusCode != http.StatusBadGateway && resp.StatusCode != http.StatusServiceUnavailable {
		return fmt.Errorf("the answer is %d", resp.StatusCode)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	return nil
}

// TestRefusedExecsAreNotRepeated has a cluster refuse an exec on a connection that
// could be used again, and break the next one on a used connection: net/http sends
// what it takes for a read again then, and an exec by WebSocket is a GET.
func TestRefusedExecsAreNotRepeated(t *testing.T) {
	w := start(t)
	w.api.User("jane", "jane")
	w.api.Allow("* * clusters/proxy *", "* create clusters/stream *")
	var execs atomic.Int32
	w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if execs.Add(1) == 1 {
			rw.WriteHeader(http.StatusForbidden)
			return
		}
		conn, _, err := http.NewResponseController(rw).Hijack()
		if err == nil {
			_ = conn.(interface{ NetConn() net.Conn }).NetConn().Close()
		}
	}), "cluster1")
	for i, want := range []int{http.StatusForbidden, http.StatusBadGateway} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.url+"/cluster1/api/v1/namespaces/a/pods/b/exec?command=rm", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Authorization": {"Bearer jane"}, "Connection": {"Upgrade"}, "Upgrade": {"websocket"}}
		resp, err := w.client("http/1.1").Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if n := int(execs.Load()); resp.StatusCode != want || n != i+1 {
			t.Errorf("exec %d is answered %d, and came to the cluster %d times", i+1, resp.StatusCode, n)
		}
	}
}
