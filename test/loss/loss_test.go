//go:build benchloss

package loss

import (
	"bytes"
	"cmp"
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

	"open-cluster-management.io/cluster-proxy/pkg/httprelay"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
)

const (
	users    = 8
	repeats  = 3
	warm     = 3 * time.Second
	measured = 8 * time.Second
	bulk     = 1 << 20
	out      = "../bench/loss.txt"
)

// lossy is what TestLoss runs on. Its rate is far below what the machine can do: bbr
// sends as fast as there is way for it, and would measure how busy the processors are.
var lossy = link{roundTrip: 50 * time.Millisecond, dropped: 100, rate: 5 << 20}

// link is the way between two places.
type link struct {
	roundTrip time.Duration
	dropped   int // one packet in so many; none if 0
	rate      int // bytes a second, each way; 0 is no limit
}

// longestQueue is how long a packet waits for others before it is dropped.
const longestQueue = 100 * time.Millisecond

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
func (l link) carry(to, from *os.File) {
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
	var free time.Time // when the way has room for the next packet
	for {
		data := make([]byte, 2048)
		n, err := from.Read(data)
		if err != nil {
			return
		}
		now := time.Now()
		if free.Before(now) {
			free = now
		}
		if l.dropped > 0 && rand.IntN(l.dropped) == 0 || free.Sub(now) > longestQueue {
			continue
		}
		if l.rate > 0 {
			free = free.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
		}
		way <- packet{free.Add(l.roundTrip / 2), data[:n]}
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

// join makes the place where l ends. Each TCP connection is given to tune, on both
// ends, before its TLS begins; protocols are the server's.
func (l link) join(t *testing.T, congestion string, tune func(net.Conn) net.Conn, protocols ...string) place {
	near, far := fmt.Sprint("loss-near-", os.Getpid()), fmt.Sprint("loss-far-", os.Getpid())
	for _, namespace := range []string{near, far} {
		run(t, "ip netns add "+namespace)
		t.Cleanup(func() { run(t, "ip netns del "+namespace) })
	}
	a, b := tun(t, near, "near0", "198.51.100.1/30"), tun(t, far, "far0", "198.51.100.2/30")
	go l.carry(a, b)
	go l.carry(b, a)
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
	var listener net.Listener
	if err := inside(far, func() (err error) {
		listener, err = (&net.ListenConfig{Control: chosen}).Listen(t.Context(), "tcp", "198.51.100.2:0")
		return err
	}); err != nil {
		t.Skipf("listening with %s: %v", congestion, err)
	}
	config := pkitest.Load(t, files).ServerConfig(tls.NoClientCert)
	config.NextProtos = protocols
	serve(t, tuned{listener, tune}, config)
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
		config.NextProtos = protocols
		conn := tls.Client(tune(raw), config)
		return conn, conn.HandshakeContext(ctx)
	}}
}

// tuned gives tune what it accepts.
type tuned struct {
	net.Listener
	tune func(net.Conn) net.Conn
}

func (l tuned) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return l.tune(conn), nil
}

// plain leaves a connection as it is.
func plain(conn net.Conn) net.Conn { return conn }

// serve answers with as many bytes as the path is known for.
func serve(t *testing.T, listener net.Listener, config *tls.Config) {
	server := &http.Server{TLSConfig: config, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		part := make([]byte, 64<<10)
		for n := sizes[r.URL.Path]; n > 0; n -= len(part) {
			if _, err := w.Write(part[:min(n, len(part))]); err != nil {
				return
			}
		}
	})}
	if err := httprelay.ConfigureServer(server, 1000); err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.ServeTLS(listener, "", "") }()
	t.Cleanup(func() { _ = server.Close() })
}

// sizes are those of answers.
var sizes = map[string]int{"/small": 1 << 10, "/bulk": bulk, "/long": long}

// figures are those of one way to connect users.
type figures struct {
	p50, p99 time.Duration // of small requests
	rate     float64       // MB/s of each user's downloads
}

func measure(t *testing.T, clients []*httprelay.Shared, path string) figures {
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
	fmt.Fprintf(&text, "%d users at a round trip of %s, one packet in %d lost each way, %d Mbit/s in all; medians of %d rounds of %s after %s.\nSmall requests take and give 1 KiB, downloads are of %d MiB, one after the other.\n", users, lossy.roundTrip, lossy.dropped, lossy.rate*8/1000000, repeats, measured, warm, bulk>>20)
	// cubic is what most kernels begin with; bbr does not take loss for congestion.
	for _, congestion := range []string{"cubic", "bbr"} {
		t.Run(congestion, func(t *testing.T) { table(t, lossy.join(t, congestion, plain, "h2"), congestion, &text) })
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
	clients := func(n, spread int) (all []*httprelay.Shared) {
		for range n {
			all = append(all, &httprelay.Shared{Dial: p.dial, Spread: spread, Streams: 250, IdleTimeout: time.Minute})
		}
		return all
	}
	rows := []struct {
		name      string
		n, spread int
	}{{ownRow, users, 1}, {oneRow, 1, 1}, {builtRow, 1, 8}}
	all := map[string][]figures{}
	for range repeats {
		for _, row := range rows {
			f := measure(t, clients(row.n, row.spread), "/small")
			f.rate = measure(t, clients(row.n, row.spread), "/bulk").rate
			all[row.name] = append(all[row.name], f)
		}
	}
	w := tabwriter.NewWriter(text, 0, 0, 3, ' ', 0)
	defer w.Flush()
	fmt.Fprintf(w, "\nconnections, %s\tsmall p50\tsmall p99\tdownloads, MB/s each\n", congestion)
	for _, row := range rows {
		f := medians(all[row.name])
		fmt.Fprintf(w, "%s\t%d ms\t%d ms\t%.2f\n", row.name, f.p50.Milliseconds(), f.p99.Milliseconds(), f.rate)
	}
	if own, shared := medians(all[ownRow]), medians(all[builtRow]); shared.p99 > 2*own.p99 || shared.rate < own.rate/2 {
		t.Errorf("who shares connections has it worse than twice who does not: p99 %s beside %s, %.2f MB/s beside %.2f; all: %v", shared.p99, own.p99, shared.rate, own.rate, all)
	}
}

// medians are those of the rounds.
func medians(all []figures) figures {
	return figures{median(all, func(f figures) time.Duration { return f.p50 }), median(all, func(f figures) time.Duration { return f.p99 }),
		median(all, func(f figures) float64 { return f.rate })}
}

func median[T cmp.Ordered](all []figures, of func(figures) T) T {
	values := make([]T, 0, len(all))
	for _, f := range all {
		values = append(values, of(f))
	}
	slices.Sort(values)
	return values[len(values)/2]
}
