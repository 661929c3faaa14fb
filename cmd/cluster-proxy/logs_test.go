package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/testkit/pkitest"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// mainEnv makes this program cluster-proxy.
const mainEnv = "CLUSTER_PROXY_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
	}
	os.Exit(m.Run())
}

// stuckLogs are the standard errors that take nothing.
var stuckLogs = map[string]func(t *testing.T) *os.File{
	"full pipe": func(t *testing.T) *os.File {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if n, err := w.Write(make([]byte, 1<<20)); err == nil {
			t.Fatalf("%d bytes fit into the pipe", n)
		}
		// The process's writes must wait, as they do for a container runtime.
		if err := syscall.SetNonblock(int(w.Fd()), false); err != nil {
			t.Fatal(err)
		}
		return w
	},
	"full disk": func(t *testing.T) *os.File {
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			t.Skipf("this system has no file that is always full: %v", err)
		}
		return full
	},
}

// TestStuckLogStopsNothing runs a proxy server and an agent, which log every
// connection, with a log that nothing reads. Connections must be served as fast
// as with one that is read.
func TestStuckLogStopsNothing(t *testing.T) {
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	read := exchanges(t, null)
	for name, open := range stuckLogs {
		t.Run(name, func(t *testing.T) {
			stuck := open(t)
			defer stuck.Close()
			took := exchanges(t, stuck)
			t.Logf("p99 of a dial and an exchange: %s, %s with a log that is read", took, read)
			if limit := max(10*read, time.Second); took > limit {
				t.Errorf("p99 of a dial and an exchange is %s with a stuck log, want %s at most; it is %s with one that is read", took, limit, read)
			}
		})
	}
}

// exchanges runs a server and an agent whose logs go to log, dials through them
// 200 times and returns the 99th percentile of what that took.
func exchanges(t *testing.T, log *os.File) time.Duration {
	t.Helper()
	target, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = target.Close() })
	go func() {
		for {
			conn, err := target.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(conn, conn); _ = conn.Close() }()
		}
	}()
	dialer := startTunnel(t, log)
	times := make([]time.Duration, 200)
	for i := range times {
		began := time.Now()
		if err := echo(t.Context(), dialer, target.Addr().String()); err != nil {
			t.Fatal(err)
		}
		times[i] = time.Since(began)
	}
	slices.Sort(times)
	return times[len(times)*99/100]
}

// TestJSONLog wants each line of a process to be one object.
func TestJSONLog(t *testing.T) {
	c := exec.CommandContext(t.Context(), os.Args[0], "proxy-api", "--logging-format=json", "--v=1")
	c.Env = append(os.Environ(), mainEnv+"=1")
	var log bytes.Buffer
	c.Stderr = &log
	if err := c.Run(); err == nil {
		t.Fatal("a proxy API without certificates does not end")
	}
	for line := range bytes.Lines(log.Bytes()) {
		if bytes.HasSuffix(line, []byte("] Data race detection enabled\n")) {
			continue // of a test's build, before flags are read
		}
		var entry struct{ Time, Level, Msg, Err string }
		if err := json.Unmarshal(line, &entry); err != nil || entry.Time == "" || entry.Level != "ERROR" || entry.Msg == "" || !strings.Contains(entry.Err, "--proxy-cert") {
			t.Errorf("the line is %s (%v); want JSON with a time, level ERROR, a message and an error that names --proxy-cert", line, err)
		}
	}
	if log.Len() == 0 {
		t.Error("the log is empty")
	}
}

func echo(ctx context.Context, dialer *tunnel.Dialer, address string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		return err
	}
	if _, err := io.WriteString(conn, "hello"); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, 5))
	return err
}

// startTunnel runs a proxy server and an agent that log as much as they can.
func startTunnel(t *testing.T, log *os.File) *tunnel.Dialer {
	t.Helper()
	dir := t.TempDir()
	ca := pkitest.NewCA(t, "hub")
	serving := pkitest.Issue(t, filepath.Join(dir, "server"), ca, pki.Leaf{CommonName: "proxy-server", IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true}, ca)
	agent := pkitest.Issue(t, filepath.Join(dir, "agent"), ca, pki.Leaf{CommonName: identity.AgentCommonName("127.0.0.1"), Client: true}, ca) // as what is dialed
	client := pkitest.NewReloader(t, ca, pki.Leaf{CommonName: string(identity.RoleClient), Client: true}, ca)
	clients, agents, health := ports.Take(t), ports.Take(t), ports.Take(t)
	runMain(t, log, "proxy-server", "--v=6", fmt.Sprint("--server-port=", clients), fmt.Sprint("--agent-port=", agents), fmt.Sprint("--health-port=", health), "--admin-port=0", "--konnectivity-agents", // ready with an agent
		"--server-bind-address=127.0.0.1", "--agent-bind-address=127.0.0.1", "--health-bind-address=127.0.0.1",
		"--server-cert="+serving.Cert, "--server-key="+serving.Key, "--server-ca-cert="+serving.CA,
		"--cluster-cert="+serving.Cert, "--cluster-key="+serving.Key, "--cluster-ca-cert="+serving.CA)
	runMain(t, log, "proxy-agent", "--v=6", "--proxy-server-host=127.0.0.1", fmt.Sprint("--proxy-server-port=", agents), "--sync-interval=100ms", "--sync-interval-cap=500ms",
		fmt.Sprint("--health-server-port=", ports.Take(t)), fmt.Sprint("--admin-server-port=", ports.Take(t)),
		"--agent-identifiers=host=127.0.0.1", "--ca-cert="+agent.CA, "--agent-cert="+agent.Cert, "--agent-key="+agent.Key)
	awaitReady(t, fmt.Sprintf("http://127.0.0.1:%d/readyz", health))
	dialer := &tunnel.Dialer{ProxyServer: fmt.Sprint("127.0.0.1:", clients), TLS: func() *tls.Config { return client.ClientConfig("127.0.0.1") }}
	t.Cleanup(func() { _ = dialer.Close() })
	return dialer
}

func awaitReady(t *testing.T, url string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	wait.Poll{Every: 50 * time.Millisecond, For: time.Minute}.Success(t, "the proxy server to have an agent", func() error {
		response, err := client.Get(url)
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("it answers %s", response.Status)
		}
		return nil
	})
}

// runMain runs cluster-proxy until the test ends.
func runMain(t *testing.T, log *os.File, args ...string) {
	t.Helper()
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), mainEnv+"=1")
	c.Stderr = log
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
}

// gate takes what is written to it once it is open.
type gate struct {
	open chan struct{}
	bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(p)
}

// TestDroppedLinesAreCounted writes more than is kept to a log that nothing
// reads for a while.
func TestDroppedLinesAreCounted(t *testing.T) {
	g := &gate{open: make(chan struct{})}
	w := newLineWriter(g)
	for range maxQueuedLines + 10 {
		if n, err := io.WriteString(w, "line\n"); n != 5 || err != nil {
			t.Fatalf("WriteString returned %d, %v; want 5 and no error", n, err)
		}
	}
	close(g.open)
	w.flush()
	lines := strings.Count(g.String(), "line\n")
	var dropped int
	for line := range strings.Lines(g.String()) {
		if n, err := fmt.Sscanf(line, "(%d lines of this log were dropped", &dropped); n == 1 && err == nil {
			break
		}
	}
	if lines+dropped != maxQueuedLines+10 || dropped < 9 {
		t.Errorf("%d lines were written and %d dropped, of %d", lines, dropped, maxQueuedLines+10)
	}
}

// TestFlushEnds does not wait for a log that nothing reads.
func TestFlushEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blocked := &gate{open: make(chan struct{})}
		w := &lineWriter{out: blocked, lines: make(chan []byte, maxQueuedLines), idle: make(chan chan struct{})}
		_, _ = io.WriteString(w, "line\n")
		began := time.Now()
		w.flush()
		if took := time.Since(began); took != lastWords {
			t.Errorf("flush returned after %s, want %s", took, lastWords)
		}
	})
}
