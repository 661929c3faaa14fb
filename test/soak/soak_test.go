package soak

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/lab"
)

// TestSoak is make soak.
func TestSoak(t *testing.T) {
	hours, err := strconv.ParseFloat(cmp.Or(os.Getenv("SOAK_HOURS"), "0"), 64)
	if err != nil {
		t.Fatal("parsing SOAK_HOURS:", err)
	}
	if hours <= 0 {
		t.Skip("make soak HOURS=1 runs it")
	}
	seed, err := strconv.ParseUint(cmp.Or(os.Getenv("SOAK_SEED"), fmt.Sprint(time.Now().UnixNano()%1e6)), 10, 64)
	if err != nil {
		t.Fatal("parsing SOAK_SEED:", err)
	}
	indexes := os.Getenv("SOAK_INDEX") != ""
	r := &report{commit: commit(), seed: seed}
	fmt.Fprintf(os.Stderr, "soak: %g hours, SOAK_SEED=%d makes the same faults again\n", hours, seed)
	var more []string
	if indexes {
		more = []string{"fleetIndex.enabled=true", "fleetIndex.persistence.enabled=false"}
	}
	s, service := startSuite(t, more...)
	everybody := &crowd{s: s, pods: map[string]string{}, dialer: s.Dialer(t), tls: s.ClientTLS(t), service: service}
	working, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); everybody.running.Wait() })
	if indexes {
		everybody.startIndex(working, t)
	}
	everybody.startAll(working, t)
	samples := &sampler{s: s}
	for i, cluster := range s.Clusters {
		for _, k := range s.Kinds(t, cluster) {
			if k.Name == proxyAgent {
				samples.kinds = append(samples.kinds, kindOf{k, cluster})
			} else if i == 0 {
				samples.kinds = append(samples.kinds, kindOf{k, "hub"})
			}
		}
	}
	if indexes {
		samples.kinds = append(samples.kinds, kindOf{s.FleetIndex(), "hub"})
	}
	sampling := make(chan struct{})
	r.began, r.clients = time.Now(), everybody.all
	r.ended = r.began.Add(time.Duration(hours * float64(time.Hour)))
	looking, done := context.WithDeadline(t.Context(), r.ended)
	defer done()
	go func() {
		defer close(sampling)
		samples.run(looking)
	}()
	b := newBreaker(t, s, seed, samples.kinds)
	b.takesAway = indexes
	for pause(looking, time.Duration(10+b.random.IntN(11))*time.Second) {
		b.next()
		for _, c := range everybody.all {
			for _, what := range c.judgeNew(b.windows) {
				fmt.Fprintf(os.Stderr, "soak: FAILED %s %s: %s\n", c.name, c.cluster, what)
			}
		}
	}
	<-sampling
	stop()
	everybody.running.Wait()
	r.windows, r.faults = b.windows, b.times
	if indexes {
		r.index = awaitIndex(t.Context(), s)
	}
	if r.trends, err = trendsOf(samples.samples, r.began, r.ended); err != nil {
		t.Fatal(err)
	}
	text, problems := r.text()
	if out := os.Getenv("SOAK_OUT"); out != "" {
		if err := os.WriteFile(out, []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	t.Log("\n" + text)
	for _, problem := range problems {
		t.Error(problem)
	}
}

// startSuite starts the lab, with two replicas of everything and more values of the chart, and a Service of
// the managed clusters: host:port of it, as in its URL.
func startSuite(t *testing.T, values ...string) (*suite.Suite, string) {
	own := lab.OwnAddress()
	if !own.IsValid() {
		t.Fatal("this machine has no address but loopback, which agents never dial")
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(own.String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a Service") })}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	dns := serveDNS(t, func(name string) netip.Addr {
		if strings.HasPrefix(name, "soak.default.svc") {
			return own
		}
		return netip.Addr{}
	})
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s, err := suite.Start(t.Context(), suite.Options{Dir: t.TempDir(), Root: root, WithoutRace: true, Values: append(values,
		"replicas=2", "extraArgs.proxyAgent={--dns-server="+dns+"}",
		"exposedServices[0].namespace=default", "exposedServices[0].service=soak", "exposedServices[0].protocol=http",
	)})
	t.Cleanup(func() { s.Stop(t.Failed()) })
	if err != nil {
		t.Fatal("setting up the clusters:", err)
	}
	cleaning, stop := context.WithCancel(t.Context())
	t.Cleanup(stop)
	go s.CleanRequests(cleaning)
	return s, "soak:" + port
}

// startAll starts all clients, and returns when each has had a success.
func (c *crowd) startAll(ctx context.Context, t *testing.T) {
	for _, cluster := range c.s.Clusters {
		c.pods[cluster] = suite.WebPod(t, suite.Clientset(t, c.s.Direct(cluster)))
		if err := c.count(ctx, cluster, namespace); err != nil {
			t.Fatal(err)
		}
		if err := c.start(ctx, cluster); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.count(ctx, c.s.Clusters[0], viewNamespace); err != nil {
		t.Fatal(err)
	}
	if err := c.startView(ctx); err != nil {
		t.Fatal(err)
	}
	for _, one := range c.all {
		suite.Eventually(t, one.name+" "+one.cluster, func() error {
			one.mu.Lock()
			defer one.mu.Unlock()
			if one.worked == 0 {
				return fmt.Errorf("%v", one.failures)
			}
			return nil
		})
	}
	// Failures before everything was there are no part of the run.
	for _, one := range c.all {
		one.mu.Lock()
		one.failures, one.gaps = nil, nil
		one.mu.Unlock()
	}
}

// serveDNS answers questions for IPv4 addresses over UDP.
func serveDNS(t *testing.T, answer func(name string) netip.Addr) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	stop := context.AfterFunc(t.Context(), func() { _ = conn.Close() })
	t.Cleanup(func() { stop(); _ = conn.Close() })
	go func() {
		buffer := make([]byte, 1500)
		for {
			n, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return
			}
			var m dnsmessage.Message
			if m.Unpack(buffer[:n]) != nil || len(m.Questions) != 1 {
				continue
			}
			q := m.Questions[0]
			m.Response, m.Authoritative, m.RecursionAvailable, m.Additionals = true, true, true, nil
			if q.Type == dnsmessage.TypeA {
				if ip := answer(strings.TrimSuffix(q.Name.String(), ".")); ip.IsValid() {
					m.Answers = []dnsmessage.Resource{{Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: 0}, Body: &dnsmessage.AResource{A: ip.As4()}}}
				} else {
					m.RCode = dnsmessage.RCodeNameError
				}
			}
			if packed, err := m.Pack(); err == nil {
				_, _ = conn.WriteTo(packed, from)
			}
		}
	}()
	return conn.LocalAddr().String()
}
