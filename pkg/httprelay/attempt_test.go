package httprelay

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// serveRaw answers each request on conn, the first one with refuse.
func serveRaw(conn net.Conn, refuse func(f *http2.Framer, stream uint32) error) {
	defer conn.Close()
	reader := bufio.NewReader(conn) // the client writes more than that before it reads
	if _, err := io.ReadFull(reader, make([]byte, len(http2.ClientPreface))); err != nil {
		return
	}
	framer := http2.NewFramer(conn, reader)
	// The client's reader writes too: a peer that does not read while it writes stops both.
	writes := make(chan func() error, 16)
	defer close(writes)
	go func() {
		for write := range writes {
			if write() != nil {
				_ = conn.Close()
			}
		}
	}()
	writes <- func() error { return framer.WriteSettings() }
	var block bytes.Buffer
	_ = hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"})
	refused := false
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				writes <- framer.WriteSettingsAck
			}
		case *http2.HeadersFrame:
			id := frame.StreamID
			if refused {
				writes <- func() error {
					return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
				}
				break
			}
			refused = true
			writes <- func() error { return refuse(framer, id) }
		}
	}
}

// TestUnprocessedIsSentAgain has a peer that says of a write that it did not look at it, and one that
// says that it may have.
func TestUnprocessedIsSentAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		refuse    func(f *http2.Framer, stream uint32) error
		wantErr   bool
		wantDials int32
	}{
		"GOAWAY":              {refuse: func(f *http2.Framer, _ uint32) error { return f.WriteGoAway(0, http2.ErrCodeNo, nil) }, wantDials: 2},
		"REFUSED_STREAM":      {refuse: func(f *http2.Framer, id uint32) error { return f.WriteRSTStream(id, http2.ErrCodeRefusedStream) }, wantDials: 1},
		"INTERNAL_ERROR":      {refuse: func(f *http2.Framer, id uint32) error { return f.WriteRSTStream(id, http2.ErrCodeInternal) }, wantErr: true, wantDials: 1},
		"a closed connection": {refuse: func(*http2.Framer, uint32) error { return io.EOF }, wantErr: true, wantDials: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var dials atomic.Int32
				s := &Shared{Spread: 1, Streams: 10, IdleTimeout: time.Hour, Dial: func(context.Context) (net.Conn, error) {
					near, far := net.Pipe()
					refuse := tc.refuse
					if dials.Add(1) > 1 {
						refuse = func(f *http2.Framer, stream uint32) error {
							return f.WriteRSTStream(stream, http2.ErrCodeRefusedStream)
						}
					}
					go serveRaw(far, refuse)
					return near, nil
				}}
				r := request(t, http.MethodPost, "/")
				r.Body, r.ContentLength = io.NopCloser(io.MultiReader(strings.NewReader("object"))), 6
				if err := exchange(s.RoundTrip, r); (err != nil) != tc.wantErr {
					t.Errorf("the write ends with %v, want an error: %t", err, tc.wantErr)
				}
				if got := dials.Load(); got != tc.wantDials {
					t.Errorf("%d connections were made, want %d", got, tc.wantDials)
				}
				s.Retire()
				synctest.Wait()
			})
		})
	}
}

// TestSlowAnswersOfAPeerThatShutsDown has a connection take no more requests, not even those that ask whether it is alive,
// while an answer on it takes long. The answer is waited for, and the read is sent once.
func TestSlowAnswersOfAPeerThatShutsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var served atomic.Int32
		p := &h2Peer{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			served.Add(1)
			slow(10*time.Second).ServeHTTP(w, r)
		})}
		s := &Shared{Dial: p.dial, Spread: 4, Streams: 100, IdleTimeout: time.Hour}
		defer p.close()
		time.AfterFunc(time.Second, func() {
			p.mu.Lock()
			first := p.servers[0]
			p.mu.Unlock()
			_ = first.Shutdown(t.Context())
		})
		if err := exchange(s.RoundTripRead, request(t, http.MethodGet, "/slow")); err != nil || served.Load() != 1 {
			t.Errorf("a slow read ends with %v and was served %d times, want an answer and once", err, served.Load())
		}
		if err := exchange(s.RoundTripRead, request(t, http.MethodGet, "/")); err != nil || p.dials() != 2 {
			t.Errorf("the next read ends with %v, on %d connections; want an answer on the second", err, p.dials())
		}
	})
}

// TestFullConnectionsStay has a peer that takes two requests at a time on a connection. A connection
// that was full once takes requests again.
func TestFullConnectionsStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &h2Peer{handler: slow(time.Second), streams: 2}
		s := &Shared{Dial: p.dial, Spread: 2, Streams: 100, IdleTimeout: time.Hour}
		defer p.close()
		for range 5 {
			var asking sync.WaitGroup
			for range 5 {
				asking.Go(func() {
					if err := exchange(s.RoundTrip, request(t, http.MethodGet, "/slow")); err != nil {
						t.Error(err)
					}
				})
			}
			asking.Wait()
		}
		if got := p.dials(); got > 3 {
			t.Errorf("five requests at a time took %d connections, want three at most, which have six places", got)
		}
	})
}
