package rawhttp

import (
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// Arrival is a request that arrived whole.
type Arrival struct {
	Request
	Method          string
	Header, Trailer http.Header
}

// Recorder is a server that records the requests that arrive whole, and answers
// them with 200.
type Recorder struct {
	mu  sync.Mutex
	all []Arrival
}

func (a *Recorder) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.all = append(a.all, Arrival{Request{URI: r.RequestURI, Body: string(body)}, r.Method, r.Header, r.Trailer})
}

// Take returns what has arrived since the last Take.
func (a *Recorder) Take() []Arrival {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := a.all
	a.all = nil
	return all
}

// Talk sends raw bytes, and reads until that ends the connection or nothing comes
// for 2 s. It closes conn.
func Talk(conn net.Conn, raw string) error {
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	_, _ = io.WriteString(conn, raw)
	_, _ = io.Copy(io.Discard, conn)
	return nil
}
