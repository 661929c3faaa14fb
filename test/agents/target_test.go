package agents

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/carriertest"
)

// target is a TCP server on every loopback address, one for each cluster. It
// sends back what it got, if that was meant for the cluster that it was reached
// as.
type target struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu       sync.Mutex
	open     map[net.Conn]struct{}
	problems []string
}

func listenTarget() (*target, error) {
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, err
	}
	s := &target{listener: listener, open: map[net.Conn]struct{}{}}
	s.wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open[conn] = struct{}{}
			s.mu.Unlock()
			s.wg.Go(func() { s.serve(conn) })
		}
	})
	return s, nil
}

func (s *target) close() {
	_ = s.listener.Close()
	s.mu.Lock()
	for conn := range s.open {
		_ = conn.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

func newTarget(t *testing.T) *target {
	t.Helper()
	s, err := listenTarget()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.close()
		for _, problem := range s.problems {
			t.Error(problem)
		}
	})
	return s
}

func (s *target) port() int { return s.listener.Addr().(*net.TCPAddr).Port }

func (s *target) address(cluster string) string {
	return net.JoinHostPort(cluster, strconv.Itoa(s.port()))
}

// connections is how many are open.
func (s *target) connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// serve echoes and looks at what it echoes: the first byte says how long the
// label of the connection is, which starts with the cluster.
func (s *target) serve(conn net.Conn) {
	defer func() {
		_ = conn.Close()
		s.mu.Lock()
		delete(s.open, conn)
		s.mu.Unlock()
	}()
	cluster, _, _ := net.SplitHostPort(conn.LocalAddr().String())
	var size [1]byte
	if _, err := io.ReadFull(conn, size[:]); err != nil {
		return
	}
	label := make([]byte, size[0])
	if _, err := io.ReadFull(conn, label); err != nil {
		return
	}
	if !strings.HasPrefix(string(label), cluster+"/") {
		s.mu.Lock()
		s.problems = append(s.problems, fmt.Sprintf("a connection for %q came out at cluster %s", label, cluster))
		s.mu.Unlock()
		return
	}
	// It sends back what arrived; the client checks it, and so does this
	// side, by a copy.
	checked, copied := io.Pipe()
	verdict := make(chan error, 1)
	go func() {
		_, err := carriertest.Check(checked, string(label))
		_ = checked.CloseWithError(err)
		verdict <- err
	}()
	_, err := io.Copy(conn, io.TeeReader(conn, copied))
	if err == nil {
		_ = copied.Close()
	} else {
		_ = copied.CloseWithError(err)
	}
	if checkErr := <-verdict; checkErr != nil && err == nil {
		s.mu.Lock()
		s.problems = append(s.problems, checkErr.Error())
		s.mu.Unlock()
	}
}

// dialFunc is what loads dial with.
type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

var connectionNumber atomic.Int64

// exchange dials a cluster, sends records, half-closes if the connection can,
// and checks what comes back.
func (s *target) exchange(ctx context.Context, dial dialFunc, cluster string, records int) error {
	conn, err := dial(ctx, "tcp", s.address(cluster))
	if err != nil {
		return fmt.Errorf("dialing: %w", err)
	}
	defer conn.Close()
	label := fmt.Sprintf("%s/%d", cluster, connectionNumber.Add(1))
	if _, err := conn.Write(append([]byte{byte(len(label))}, label...)); err != nil {
		return err
	}
	half, ok := conn.(interface{ CloseWrite() error })
	writer := carriertest.NewWriter(conn, label)
	sent := make(chan error, 1)
	go func() {
		for range records {
			if err := writer.WriteRecord(rand.IntN(32 << 10)); err != nil {
				sent <- err
				return
			}
		}
		if ok {
			sent <- half.CloseWrite()
		} else {
			sent <- nil
		}
	}()
	var got uint64
	if ok {
		got, err = carriertest.Check(conn, label)
	} else {
		got, err = carriertest.CheckN(conn, label, uint64(records))
	}
	if sendErr := <-sent; sendErr != nil {
		return sendErr
	}
	if err == nil && got != uint64(records) {
		err = fmt.Errorf("%d of %d records of %q came back", got, records, label)
	}
	return err
}

// load runs workers that dial and exchange until stop, and counts.
type load struct {
	wg       sync.WaitGroup
	stopped  atomic.Bool
	done     atomic.Int64
	mu       sync.Mutex
	failures []string
	times    []time.Duration
}

func startLoad(s *target, workers int, pause time.Duration, dials []dialFunc, clusters []string) *load {
	l := &load{}
	for i := range workers {
		l.wg.Go(func() {
			for n := i; !l.stopped.Load(); n++ {
				began := time.Now()
				err := s.exchange(context.Background(), dials[i%len(dials)], clusters[n%len(clusters)], 3)
				l.mu.Lock()
				l.times = append(l.times, time.Since(began))
				if err != nil {
					l.failures = append(l.failures, fmt.Sprintf("worker %d after %s: %v", i, time.Since(began), err))
				}
				l.mu.Unlock()
				l.done.Add(1)
				<-time.After(pause)
			}
		})
	}
	return l
}

// take gives the times since the last take.
func (l *load) take() []time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	times := l.times
	l.times = nil
	return times
}

// stop waits for the workers and reports every failure.
func (l *load) stop(t *testing.T) {
	t.Helper()
	l.stopped.Store(true)
	l.wg.Wait()
	for i, failure := range l.failures {
		if i == 10 {
			t.Errorf("and %d more", len(l.failures)-10)
			break
		}
		t.Error(failure)
	}
	t.Logf("%d exchanges", l.done.Load())
}
