//go:build benchloss

package loss

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"open-cluster-management.io/cluster-proxy/pkg/hop"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/pkitest"
)

const (
	roundTrip = 50 * time.Millisecond
	dropped   = 100 // one in so many
	users     = 8
	warm      = 3 * time.Second
	measured  = 15 * time.Second
	bulk      = 1 << 20
	out       = "../bench/loss.txt"
)

// tun makes a device in the namespace, with an address.
func tun(t *testing.T, namespace, name, address string) *os.File {
	t.Helper()
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("opening a tun device: %v", err)
	}
	var request [40]byte
	copy(request[:], name)
	*(*uint16)(unsafe.Pointer(&request[16])) = unix.IFF_TUN | unix.IFF_NO_PI
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.TUNSETIFF, uintptr(unsafe.Pointer(&request))); errno != 0 {
		t.Skipf("making a tun device: %v", errno)
	}
	run(t, "ip link set "+name+" netns "+namespace)
	run(t, "ip -n "+namespace+" addr add "+address+" dev "+name)
	run(t, "ip -n "+namespace+" link set "+name+" up txqueuelen 10000")
	device := os.NewFile(uintptr(fd), name)
	t.Cleanup(func() { _ = device.Close() })
	return device
}

func run(t *testing.T, line string) {
	t.Helper()
	args := strings.Fields(line)
	if text, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", line, err, text)
	}
}

// carry passes packets on, late, but for those that it drops.
func carry(to, from *os.File) {
	type packet struct {
		due  time.Time
		data []byte
	}
	way := make(chan packet, 100000)
	go func() {
		for p := range way {
			<-time.After(time.Until(p.due))
			_, _ = to.Write(p.data)
		}
	}()
	defer close(way)
	for {
		data := make([]byte, 2048)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		if rand.IntN(dropped) > 0 {
			way <- packet{time.Now().Add(roundTrip / 2), data[:n]}
		}
	}
}

// inside runs f on a thread in a network namespace. Sockets stay where they were made.
func inside(namespace string, f func() error) error {
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		fd, err := unix.Open("/run/netns/"+namespace, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if err == nil {
			err = f()
		}
		failed <- err
	}()
	return <-failed
}

// place is a server far away, and the way to it.
type place struct {
	dial func(context.Context) (net.Conn, error)
}

func makePlace(t *testing.T, congestion string) place {
	near, far := fmt.Sprint("loss-near-", os.Getpid()), fmt.Sprint("loss-far-", os.Getpid())
	for _, namespace := range []string{near, far} {
		run(t, "ip netns add "+namespace)
		t.Cleanup(func() { run(t, "ip netns del "+namespace) })
	}
	a, b := tun(t, near, "near0", "198.51.100.1/30"), tun(t, far, "far0", "198.51.100.2/30")
	go carry(a, b)
	go carry(b, a)
	chosen := func(_, _ string, raw syscall.RawConn) (err error) {
		if failed := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, congestion)
		}); failed != nil {
			return failed
		}
		return err
	}
	ca := pkitest.NewCA(t, "hub")
	files := pkitest.Issue(t, filepath.Join(t.TempDir(), "server"), ca, pki.Leaf{CommonName: "server", DNSNames: []string{"server"}, Server: true}, ca)
	config := pkitest.Load(t, files).ServerConfig(tls.NoClientCert)
	config.NextProtos = []string{"h2"}
	server := &http.Server{TLSConfig: config, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		n := 1 << 10
		if r.URL.Path == "/bulk" {
			n = bulk
		}
		_, _ = w.Write(make([]byte, n))
	})}
	if err := hop.ConfigureServer(server, 1000); err != nil {
		t.Fatal(err)
	}
	var listener net.Listener
	if err := inside(far, func() (err error) {
		listener, err = (&net.ListenConfig{Control: chosen}).Listen(t.Context(), "tcp", "198.51.100.2:0")
		return err
	}); err != nil {
		t.Skipf("listening with %s: %v", congestion, err)
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
	trust := pkitest.Load(t, pki.Files{CA: files.CA})
	return place{func(ctx context.Context) (net.Conn, error) {
		var raw net.Conn
		if err := inside(near, func() (err error) {
			raw, err = (&net.Dialer{Timeout: 10 * time.Second, Control: chosen}).DialContext(ctx, "tcp", listener.Addr().String())
			return err
		}); err != nil {
			return nil, err
		}
		config := trust.ClientConfig("server")
		config.NextProtos = []string{"h2"}
		conn := tls.Client(raw, config)
		return conn, conn.HandshakeContext(ctx)
	}}
}

// figures are those of one way to connect users.
type figures struct {
	p50, p99 time.Duration // of small requests
	rate     float64       // MB/s of each user's downloads
}

func measure(t *testing.T, clients []*hop.Shared, path string) figures {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), warm+measured)
	defer cancel()
	began := time.Now().Add(warm)
	var mu sync.Mutex
	var took []time.Duration
	var total int64
	var all sync.WaitGroup
	for i := range users {
		all.Go(func() {
			for ctx.Err() == nil {
				r, _ := http.NewRequestWithContext(ctx, http.MethodPost, "https://server"+path, bytes.NewReader(make([]byte, 1<<10)))
				start := time.Now()
				resp, err := clients[i%len(clients)].RoundTrip(r)
				if err != nil {
					continue
				}
				part := make([]byte, 64<<10)
				for err == nil {
					var n int
					n, err = resp.Body.Read(part)
					if mu.Lock(); time.Now().After(began) {
						total += int64(n)
					}
					mu.Unlock()
				}
				_ = resp.Body.Close()
				if mu.Lock(); start.After(began) && ctx.Err() == nil {
					took = append(took, time.Since(start))
				}
				mu.Unlock()
			}
		})
	}
	all.Wait()
	for _, c := range clients {
		c.Retire()
	}
	slices.Sort(took)
	f := figures{rate: float64(total) / users / measured.Seconds() / 1e6}
	if len(took) > 0 {
		f.p50, f.p99 = took[len(took)/2], took[len(took)*99/100]
	}
	return f
}

func TestLoss(t *testing.T) {
	var text bytes.Buffer
	fmt.Fprintf(&text, "%d users at a round trip of %s, one packet in %d lost each way; %s measured after %s.\nSmall requests take and give 1 KiB, downloads are of %d MiB, one after the other.\n", users, roundTrip, dropped, measured, warm, bulk>>20)
	// cubic is what most kernels begin with; bbr does not take loss for congestion.
	for _, congestion := range []string{"cubic", "bbr"} {
		t.Run(congestion, func(t *testing.T) { table(t, makePlace(t, congestion), congestion, &text) })
	}
	t.Log("\n" + text.String())
	if err := os.WriteFile(out, text.Bytes(), 0o644); err != nil {
		t.Error(err)
	}
}

const (
	ownRow   = "one of each user's own"
	oneRow   = "one for all"
	builtRow = "up to 8 for all (the proxy API)"
)

func table(t *testing.T, p place, congestion string, text io.Writer) {
	clients := func(n, spread int) (all []*hop.Shared) {
		for range n {
			all = append(all, &hop.Shared{Dial: p.dial, Spread: spread, Streams: 250, IdleTimeout: time.Minute})
		}
		return all
	}
	w := tabwriter.NewWriter(text, 0, 0, 3, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "\nconnections, %s\tsmall p50\tsmall p99\tdownloads, MB/s each\n", congestion)
	got := map[string]figures{}
	for _, row := range []struct {
		name      string
		n, spread int
	}{{ownRow, users, 1}, {oneRow, 1, 1}, {builtRow, 1, 8}} {
		f := measure(t, clients(row.n, row.spread), "/small")
		f.rate = measure(t, clients(row.n, row.spread), "/bulk").rate
		got[row.name] = f
		fmt.Fprintf(w, "%s\t%d ms\t%d ms\t%.2f\n", row.name, f.p50.Milliseconds(), f.p99.Milliseconds(), f.rate)
	}
	// What is owed is held where one flow's rate is what loss leaves of it; bbr's is
	// that of the machine, and shown.
	if own, shared := got[ownRow], got[builtRow]; congestion == "cubic" && (shared.p99 > 2*own.p99 || shared.rate < own.rate/2) {
		t.Errorf("who shares connections has it worse than twice who does not: p99 %s beside %s, %.2f MB/s beside %.2f", shared.p99, own.p99, shared.rate, own.rate)
	}
}
