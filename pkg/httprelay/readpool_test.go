package httprelay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer answers each request on each connection with what answer gives.
type peer struct {
	dials  int
	ended  int
	answer func(conn, request int) string // empty ends the connection
}

func (p *peer) dial(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	p.dials++
	conn := p.dials
	go func() {
		defer func() { p.ended++ }()
		defer far.Close()
		reader := bufio.NewReader(far)
		for request := 1; ; request++ {
			if _, err := http.ReadRequest(reader); err != nil {
				return
			}
			answer := p.answer(conn, request)
			if answer == "" {
				return
			}
			if _, err := io.WriteString(far, answer); err != nil {
				return
			}
		}
	}()
	return near, nil
}

func ok(body string) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// one makes the first connection of pooled.
func one(k *ReadPool) {
	k.grow()
	k.grow()
	synctest.Wait()
}

func ask(t *testing.T, k *ReadPool) (string, error) {
	t.Helper()
	defer synctest.Wait()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://peer/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := k.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func TestPooledConnectionsAreUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{answer: func(conn, request int) string { return ok(fmt.Sprint(conn, request)) }}
		k := &ReadPool{Dial: p.dial, Most: 2, IdleTimeout: time.Minute}
		if _, err := ask(t, k); !errors.Is(err, ErrNone) {
			t.Errorf("with no connection: %v, want ErrNone", err)
		}
		one(k)
		for request := 1; request < 4; request++ {
			if body, err := ask(t, k); err != nil || body != fmt.Sprint(1, request) {
				t.Errorf("request %d: %q, %v; want %q", request, body, err, fmt.Sprint(1, request))
			}
		}
		time.Sleep(59 * time.Second)
		if _, err := ask(t, k); err != nil {
			t.Errorf("before the idle timeout: %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := ask(t, k); !errors.Is(err, ErrNone) || p.ended != 1 {
			t.Errorf("after the idle timeout: %v, %d connections ended", err, p.ended)
		}
		if p.dials != 1 {
			t.Errorf("%d dials, want 1", p.dials)
		}
	})
}

// TestNoAnswerMeetsAnotherRequest says after what a connection is not used again.
func TestNoAnswerMeetsAnotherRequest(t *testing.T) {
	for name, answer := range map[string]string{
		"more than the body":      ok("a") + ok("b"),
		"connection: close":       "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na",
		"HTTP/1.0":                "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
		"cut off":                 "",
		"no HTTP":                 "SSH-2.0-x\r\n\r\n",
		"a header without an end": "HTTP/1.1 200 OK\r\nA: " + strings.Repeat("a", MaxHeaderBytes),
		"only answers to come":    strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", maxInformational+1) + ok("a"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{answer: func(int, int) string { return answer }}
				k := &ReadPool{Dial: p.dial, Most: 1, IdleTimeout: time.Minute}
				one(k)
				body, err := ask(t, k)
				if (err == nil) != (body == "a") {
					t.Errorf("answer %q, %v; want \"a\" or an error", body, err)
				}
				if _, err := ask(t, k); !errors.Is(err, ErrNone) {
					t.Errorf("the connection is used again: %v", err)
				}
				if p.ended != 1 {
					t.Error("the connection was not closed")
				}
			})
		})
	}
}

func TestAbandonedAnswersEndTheConnection(t *testing.T) {
	for name, abandon := range map[string]func(resp *http.Response, cancel func()){
		"closed":   func(resp *http.Response, _ func()) { resp.Body.Close() },
		"canceled": func(resp *http.Response, cancel func()) { cancel(); _, _ = io.ReadAll(resp.Body) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := &peer{answer: func(int, int) string { return "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab" }}
				k := &ReadPool{Dial: p.dial, Most: 1, IdleTimeout: time.Minute}
				one(k)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://peer/x", nil)
				resp, err := k.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				abandon(resp, cancel)
				synctest.Wait()
				if _, err := ask(t, k); !errors.Is(err, ErrNone) || p.ended != 1 {
					t.Errorf("error %v and %d connections ended, want ErrNone and 1", err, p.ended)
				}
			})
		})
	}
}

func TestFits(t *testing.T) {
	for _, tc := range []struct {
		method, url, upgrade, body string
		want                       bool
	}{
		{method: "GET", url: "/api/v1/pods?limit=5", want: true},
		{method: "HEAD", url: "/api", want: true},
		{method: "DELETE", url: "/api/v1/pods"},
		{method: "GET", url: "/api/v1/pods", body: "x"},
		{method: "GET", url: "/api/v1/pods", upgrade: "SPDY/3.1"},
		{method: "GET", url: "/api/v1/pods?watch=1"},
		{method: "GET", url: "/api/v1/watch/pods"},
	} {
		r, err := http.NewRequest(tc.method, tc.url, strings.NewReader(tc.body))
		if err != nil {
			t.Fatal(err)
		}
		if tc.upgrade != "" {
			r.Header.Set("Upgrade", tc.upgrade)
		}
		if Fits(r) != tc.want {
			t.Errorf("Fits(%+v) = %v, want %v", tc, !tc.want, tc.want)
		}
	}
}

// TestOr says how often a request is sent.
func TestOr(t *testing.T) {
	cut := errors.New("cut off")
	broken := &Broken{Err: cut}
	for name, tc := range map[string]struct {
		pooled error
		other  []error // nil is an answer
		ended  bool    // whoever asked is gone
		sent   int
		err    error
	}{
		"pooled":                       {sent: 1},
		"none is free":                 {pooled: ErrNone, other: []error{nil}, sent: 1},
		"pooled broke":                 {pooled: cut, other: []error{nil}, sent: 2},
		"pooled broke, and the other":  {pooled: cut, other: []error{broken, nil}, sent: 3},
		"everything broke":             {pooled: cut, other: []error{broken, broken, nil}, sent: 3, err: cut},
		"the other broke":              {pooled: ErrNone, other: []error{broken, nil}, sent: 2},
		"the other broke twice":        {pooled: ErrNone, other: []error{broken, broken, nil}, sent: 2, err: cut},
		"the other failed":             {pooled: ErrNone, other: []error{cut, nil}, sent: 1, err: cut},
		"nobody asks any more":         {pooled: cut, other: []error{nil}, ended: true, sent: 1, err: cut},
		"nobody asks, the other broke": {pooled: ErrNone, other: []error{broken, nil}, ended: true, sent: 0, err: ErrNone},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		sent := 0
		pooled := func(*http.Request) (*http.Response, error) {
			if tc.pooled != ErrNone {
				sent++
			}
			if tc.ended {
				cancel()
			}
			return nil, tc.pooled
		}
		other := func(*http.Request) (*http.Response, error) {
			sent++
			err := tc.other[0]
			tc.other = tc.other[1:]
			return nil, err
		}
		_, err := new(ReadPool).RoundTripOr(pooled, other, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		cancel()
		if sent != tc.sent || !errors.Is(err, tc.err) {
			t.Errorf("%s: sent %d times, %v; want %d, %v", name, sent, err, tc.sent, tc.err)
		}
	}
}

// TestRequestsOfALongSilenceAreNotRepeated sees how long a client waits whose
// connection turns out to be dead.
func TestRequestsOfALongSilenceAreNotRepeated(t *testing.T) {
	broke := errors.New("broke")
	for silent, repeated := range map[time.Duration]bool{0: true, 12 * time.Second: true, 25 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			none := func(*http.Request) (*http.Response, error) { return nil, ErrNone }
			first := true
			silentOnce := func(*http.Request) (*http.Response, error) {
				if first {
					first = false
					time.Sleep(silent)
					return nil, &Broken{Err: broke}
				}
				return &http.Response{}, nil
			}
			resp, err := new(ReadPool).RoundTripOr(none, silentOnce, httptest.NewRequest(http.MethodGet, "/", nil))
			if got := resp != nil; got != repeated || !repeated && !errors.Is(err, broke) {
				t.Errorf("silent for %s: sent again %v, want %v; error %v", silent, got, repeated, err)
			}
		})
	}
}
