package recording

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	promtest "github.com/prometheus/client_golang/prometheus/testutil"

	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

// recorderHost is a Service that asks for a client certificate.
type recorderHost struct {
	dial func(ctx context.Context) (net.Conn, error)
	// server and client are the two ends' certificates.
	server, client *pki.Reloader
	// ended is closed when the test ends.
	ended    chan struct{}
	mu       sync.Mutex
	requests []*http.Request
	// bodies are what came of each.
	bodies [][]byte
}

// take reads a request's body, at most n bytes, and keeps it.
func (h *recorderHost) take(r *http.Request, n int64) error {
	h.mu.Lock()
	h.requests = append(h.requests, r)
	i := len(h.bodies)
	h.bodies = append(h.bodies, nil)
	h.mu.Unlock()
	body := io.LimitReader(r.Body, n)
	for piece := make([]byte, 4<<10); ; {
		n, err := body.Read(piece)
		h.mu.Lock()
		h.bodies[i] = append(h.bodies[i], piece[:n]...)
		h.mu.Unlock()
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return err
		}
	}
}

// got are the first request, what came of it, and how many there were.
func (h *recorderHost) got(t *testing.T) (r *http.Request, body []byte, requests int) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.requests) == 0 {
		t.Fatal("there was no request")
	}
	return h.requests[0], bytes.Clone(h.bodies[0]), len(h.requests)
}

// newHost serves at a listener until the test ends.
func newHost(t *testing.T, listener net.Listener, dial func(context.Context) (net.Conn, error), serve func(*recorderHost, http.ResponseWriter, *http.Request)) *recorderHost {
	t.Helper()
	ca := pkitest.NewCA(t, "recordings")
	h := &recorderHost{dial: dial, ended: make(chan struct{}),
		server: pkitest.NewReloader(t, ca, pki.Leaf{CommonName: "recorder", DNSNames: []string{"recorder.test"}, Server: true}, ca),
		client: pkitest.NewReloader(t, ca, pki.Leaf{CommonName: "proxy-api", Client: true}, ca)}
	server := &http.Server{ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(h, w, r) })}
	ended := make(chan error)
	go func() {
		ended <- server.Serve(tls.NewListener(listener, h.server.ServerConfig(tls.RequireAndVerifyClientCert)))
	}()
	t.Cleanup(func() {
		close(h.ended)
		server.Close()
		<-ended
	})
	return h
}

// onTCP is a host at a port of this machine.
func onTCP(t *testing.T, serve func(*recorderHost, http.ResponseWriter, *http.Request)) *recorderHost {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newHost(t, listener, func(ctx context.Context) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	}, serve)
}

// pipes is a listener within the process.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

// inBubble is a host for synctest.
func inBubble(t *testing.T, serve func(*recorderHost, http.ResponseWriter, *http.Request)) *recorderHost {
	t.Helper()
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	return newHost(t, p, func(ctx context.Context) (net.Conn, error) {
		here, there := net.Pipe()
		select {
		case p.conns <- there:
			return here, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}, serve)
}

// store is one that sends recordings to the host.
func (h *recorderHost) store(t *testing.T, change func(*Options)) *Store {
	return newStore(t, func(o *Options) {
		o.Dir = ""
		o.Service = &Service{
			URL:   &url.URL{Scheme: "https", Host: "recorder.test", Path: "/casts"},
			Token: func() (string, error) { return "the-token", nil },
			Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
				host, _, err := net.SplitHostPort(address)
				if err != nil {
					return nil, err
				}
				conn, err := h.dial(ctx)
				if err != nil {
					return nil, err
				}
				secured := tls.Client(conn, h.client.ClientConfig(host))
				if err := secured.HandshakeContext(ctx); err != nil {
					conn.Close()
					return nil, err
				}
				return secured, nil
			},
		}
		change(o)
	})
}

// read reads what the host has got.
func read(t *testing.T, body []byte) (streams [3]string, end string, err error) {
	t.Helper()
	reader, err := NewReader(bytes.NewReader(body))
	for err == nil {
		var event Event
		if event, err = reader.Next(); err == nil && event.End == "" && event.Stream < 3 {
			streams[event.Stream] += string(event.Data)
		}
		end = event.End + end
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return streams, end, err
}

const unreachable = "the Service of recordings cannot be reached"

func takeAll(h *recorderHost, w http.ResponseWriter, r *http.Request) {
	if h.take(r, 1<<40) == nil {
		w.WriteHeader(http.StatusCreated)
	}
}

// die ends the connection at once. net/http would read the rest of the request first.
func die(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		conn.Close()
	}
}

// TestUpload has a Service get each byte of a session, once, under a name that nobody has chosen.
func TestUpload(t *testing.T) {
	h := onTCP(t, takeAll)
	s := h.store(t, asIs)
	r, failed := begin(t, s)
	random := make([]byte, 3<<20)
	_, _ = rand.Read(random)
	var want [3]string
	for rest := random; len(rest) > 0; {
		n, stream := min(len(rest), 1+below(40000)), Stream(below(3))
		r.Room()
		r.Add(stream, rest[:n])
		want[stream] += string(rest[:n])
		rest = rest[n:]
	}
	r.Close("because")
	s.await(r)
	request, body, requests := h.got(t)
	got, end, err := read(t, body)
	if err != nil || got != want || end != "because" || requests != 1 || len(failed) > 0 {
		t.Errorf("%d requests, end %q, %v; the same bytes: %t", requests, end, err, got == want)
	}
	if request.Method != http.MethodPut || request.URL.Path != "/casts/"+r.Path() || request.Host != "recorder.test" || request.ContentLength != -1 || len(request.TLS.PeerCertificates) == 0 {
		t.Errorf("the request is %s %s at %s with length %d", request.Method, request.URL, request.Host, request.ContentLength)
	}
	for name, want := range map[string]string{"Authorization": "Bearer the-token", "Content-Type": "application/x-asciicast", "If-None-Match": "*"} {
		if got := request.Header.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if written, open := promtest.ToFloat64(s.metrics.Written), promtest.ToFloat64(s.metrics.Open); written != float64(len(body)) || open != 0 {
		t.Errorf("%v bytes are counted and %v recordings open, want %d and 0", written, open, len(body))
	}
}

// TestUploadOfNothing has a session that does not begin: what was sent says so.
func TestUploadOfNothing(t *testing.T) {
	h := onTCP(t, takeAll)
	s := h.store(t, asIs)
	r, failed := begin(t, s)
	r.Discard()
	s.await(r)
	_, body, _ := h.got(t)
	if got, end, err := read(t, body); err != nil || end != notBegun || got != [3]string{} || len(failed) > 0 {
		t.Errorf("got %q, end %q, %v; want none, and %q", got, end, err, notBegun)
	}
}

// TestUploadRefused has Services that take nothing. Nothing of a recording is sent to them.
func TestUploadRefused(t *testing.T) {
	answer := func(code int) func(*recorderHost, http.ResponseWriter, *http.Request) {
		return func(h *recorderHost, w http.ResponseWriter, r *http.Request) {
			_ = h.take(r, 0)
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(code)
		}
	}
	otherCA := pkitest.NewCA(t, "another CA")
	for name, tc := range map[string]struct {
		serve  func(*recorderHost, http.ResponseWriter, *http.Request)
		change func(*recorderHost, *Service)
		want   string
	}{
		"full":         {serve: answer(http.StatusInsufficientStorage), want: "the Service of recordings answers 507 Insufficient Storage"},
		"forbidden":    {serve: answer(http.StatusForbidden), want: "the Service of recordings answers 403 Forbidden"},
		"redirect":     {serve: answer(http.StatusTemporaryRedirect), want: "the Service of recordings answers 307 Temporary Redirect"},
		"at once":      {serve: answer(http.StatusCreated), want: "the Service of recordings has answered before the recording's end"},
		"no answer":    {serve: func(_ *recorderHost, w http.ResponseWriter, _ *http.Request) { die(w) }, want: unreachable},
		"no token":     {serve: takeAll, change: func(_ *recorderHost, s *Service) { s.Token = func() (string, error) { return "", os.ErrNotExist } }, want: "the Service of recordings needs a token, which cannot be read"},
		"a bad token":  {serve: takeAll, change: func(_ *recorderHost, s *Service) { s.Token = func() (string, error) { return "a\r\nb", nil } }, want: unreachable},
		"another host": {serve: takeAll, change: func(_ *recorderHost, s *Service) { s.URL.Host = "another.test" }, want: unreachable},
		"another CA": {serve: takeAll, change: func(h *recorderHost, _ *Service) {
			h.client = pkitest.NewReloader(t, otherCA, pki.Leaf{CommonName: "proxy-api", Client: true}, otherCA)
		}, want: unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			h := onTCP(t, tc.serve)
			s := h.store(t, func(o *Options) {
				if tc.change != nil {
					tc.change(h, o.Service)
				}
			})
			_, err := s.Open(t.Context(), Session{Name: randomName()}, func(err error) { t.Errorf("failed was called with %v", err) })
			var of *ServiceError
			if err == nil || err.Error() != tc.want || !errors.As(err, &of) {
				t.Errorf("error %v, want %s", err, tc.want)
			}
			h.mu.Lock()
			defer h.mu.Unlock()
			if len(h.requests) > 1 || len(h.bodies) > 0 && len(h.bodies[0]) > 0 {
				t.Errorf("%d requests with %q", len(h.requests), h.bodies)
			}
			if promtest.ToFloat64(s.metrics.Written) != 0 || promtest.ToFloat64(s.metrics.Open) != 0 {
				t.Error("bytes are counted that nobody has got")
			}
		})
	}
}

// TestUploadBreaks has Services that fail in the middle. They have a beginning of the
// session, and it is not sent again.
func TestUploadBreaks(t *testing.T) {
	for name, tc := range map[string]struct {
		serve func(*recorderHost, http.ResponseWriter, *http.Request)
		want  string
	}{
		"dies": {func(h *recorderHost, w http.ResponseWriter, r *http.Request) {
			_ = h.take(r, 200<<10)
			die(w)
		}, unreachable},
		"answers": {func(h *recorderHost, w http.ResponseWriter, r *http.Request) {
			_ = h.take(r, 200<<10)
			w.WriteHeader(http.StatusInternalServerError)
		}, "the Service of recordings answers 500 Internal Server Error"},
		"has enough": {func(h *recorderHost, w http.ResponseWriter, r *http.Request) {
			_ = h.take(r, 200<<10)
			w.WriteHeader(http.StatusCreated)
		}, "the Service of recordings has answered before the recording's end"},
	} {
		for _, idle := range []bool{false, true} {
			for _, closed := range []bool{false, true} {
				h := onTCP(t, tc.serve)
				s := h.store(t, func(o *Options) { o.FailClosed = closed })
				r, failed := begin(t, s)
				block := []byte(strings.Repeat("0123456789abcdef", 100))
				sent := 0
				for len(failed) == 0 && (!idle || sent < 200<<10) {
					r.Room()
					r.Add(Output, block)
					sent += len(block)
				}
				for idle && len(failed) == 0 {
					s.check()
				}
				// A server that answers and does not read on may reset the connection, and its answer with it.
				if err := <-failed; err.Error() != tc.want && (idle || err.Error() != unreachable) {
					t.Errorf("%s, idle %t: failed with %v, want %s", name, idle, err, tc.want)
				}
				s.await(r)
				r.Add(Output, block)
				r.Close("x")
				request, body, requests := h.got(t)
				got, end, err := read(t, body)
				if requests != 1 || end != "" || !errors.Is(err, ErrCut) || !strings.HasPrefix(strings.Repeat(string(block), sent/len(block)), got[Output]) {
					t.Errorf("%s, idle %t: %d requests for %s, %d bytes, end %q, %v; want one with a beginning", name, idle, requests, request.URL, len(got[Output]), end, err)
				}
				if len(failed) > 0 || r.Lost() < int64(len(block)) {
					t.Errorf("%s, idle %t: %d failures more, %d bytes are lost", name, idle, len(failed), r.Lost())
				}
			}
		}
	}
}

// TestUploadFailsAtItsEnd has a Service that has read all and says that it has not kept it.
func TestUploadFailsAtItsEnd(t *testing.T) {
	h := onTCP(t, func(h *recorderHost, w http.ResponseWriter, r *http.Request) {
		_ = h.take(r, 1<<40)
		w.WriteHeader(http.StatusInternalServerError)
	})
	s := h.store(t, asIs)
	r, failed := begin(t, s)
	r.Add(Output, []byte("one"))
	r.Close("x")
	s.await(r)
	if err := <-failed; err.Error() != "the Service of recordings answers 500 Internal Server Error" || len(failed) > 0 {
		t.Errorf("failed with %v, and %d more", err, len(failed))
	}
	if _, _, requests := h.got(t); requests != 1 {
		t.Errorf("%d requests, want one", requests)
	}
}

// TestUploadHangs has Services that stop to read, or to answer.
func TestUploadHangs(t *testing.T) {
	hang := func(read int64) func(*recorderHost, http.ResponseWriter, *http.Request) {
		return func(h *recorderHost, _ http.ResponseWriter, r *http.Request) {
			if read > 0 {
				_ = h.take(r, read)
			}
			<-h.ended
		}
	}
	t.Run("at the beginning", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := inBubble(t, hang(0))
			began := time.Now()
			if _, err := h.store(t, asIs).Open(t.Context(), Session{Name: randomName()}, nil); !errors.Is(err, errStalled) || time.Since(began) > openTimeout {
				t.Errorf("error %v after %v, want %v", err, time.Since(began), errStalled)
			}
			synctest.Wait()
		})
	})
	for _, closed := range []bool{false, true} {
		t.Run("in the middle", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := inBubble(t, hang(100<<10))
				s := h.store(t, func(o *Options) { o.FailClosed = closed })
				r, failed := begin(t, s)
				began, added := time.Now(), 0
				for len(failed) == 0 && added < 100<<20 {
					r.Room()
					r.Add(Output, make([]byte, 4<<10))
					added += 4 << 10
					r.mu.Lock()
					if r.buffered() > 2*maxBuffered {
						t.Fatalf("%d bytes are in the buffer", r.buffered())
					}
					r.mu.Unlock()
				}
				if closed && added > 1<<20 {
					t.Errorf("%d bytes went on beside a recording that takes none", added)
				}
				if err := <-failed; !errors.Is(err, errStalled) || time.Since(began) > stalledAfter+time.Second {
					t.Errorf("failed with %v after %v, want %v", err, time.Since(began), errStalled)
				}
				r.Close("x")
				s.await(r)
			})
		})
	}
	t.Run("at the end", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			h := inBubble(t, hang(1<<40))
			s := h.store(t, asIs)
			r, failed := begin(t, s)
			r.Add(Output, []byte("one"))
			began := time.Now()
			r.Close("x")
			if err := <-failed; err == nil || time.Since(began) > answerTimeout {
				t.Errorf("failed with %v after %v", err, time.Since(began))
			}
			s.await(r)
		})
	})
}
