package fallback

import (
	"bufio"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
)

// heard is what the target had of one connection.
type heard struct {
	bytes int64
	err   error // of the read that ended it; io.EOF after a clean end
}

// target sends back what it gets. The first line of a connection is its name; if
// that ends in "/speaker" the target says "bye" after
// it and closes. Otherwise it says "end" once it has heard the end.
type target struct {
	listener net.Listener
	mu       sync.Mutex
	ended    map[string]chan heard // by name
}

func newTarget(t *testing.T) *target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &target{listener: l, ended: map[string]chan heard{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				stop := make(chan struct{})
				defer close(stop)
				wg.Go(func() {
					select {
					case <-t.Context().Done(): // the test is over, and waits
						_ = conn.Close()
					case <-stop:
					}
				})
				s.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		wg.Wait()
	})
	return s
}

func (s *target) address() string { return s.listener.Addr().String() }

// of is where the end of the connection with a name is told.
func (s *target) of(name string) chan heard {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended[name] == nil {
		s.ended[name] = make(chan heard, 1)
	}
	return s.ended[name]
}

func (s *target) serve(conn net.Conn) {
	in := bufio.NewReader(conn)
	name, err := in.ReadString('\n')
	if err != nil {
		return
	}
	name = strings.TrimSpace(name)
	if strings.HasSuffix(name, "/speaker") {
		_, err := io.WriteString(conn, "bye")
		s.of(name) <- heard{0, err}
		return
	}
	n, err := io.Copy(conn, in)
	if err == nil {
		err = io.EOF
		// Who closed both ways does not listen any more, and that is no error.
		_, _ = io.WriteString(conn, "end")
	}
	s.of(name) <- heard{n, err}
}
