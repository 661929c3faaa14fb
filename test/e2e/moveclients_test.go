//go:build linux

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/rest"
	konnectivity "sigs.k8s.io/apiserver-network-proxy/konnectivity-client/pkg/client"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

const (
	// moveTick is how often each client makes a request, whether earlier ones have
	// ended or not.
	moveTick = time.Second
	// moveRequestLimit is how long it waits for an answer.
	moveRequestLimit = 10 * time.Second
	// moveCalm is how long requests must have gone well for a move to be over.
	moveCalm = 5 * time.Second
)

// moveClient makes requests of one kind to one cluster.
type moveClient struct {
	cluster, name string
	cancel        context.CancelFunc
	running       sync.WaitGroup

	mu     sync.Mutex
	made   int
	failed []sample
	bad    time.Time // the end of the last request that failed
	good   time.Time // the end of the last one that did not, or the last event
}

// moveRow is what a client noticed.
type moveRow struct {
	way, cluster, client string
	replicas             int
	made, failed         int
	lost, span           time.Duration
	first                time.Duration // after the beginning
	errors               []string
}

// startMoveClients starts one client of each kind, each with its first success.
func startMoveClients(t *testing.T, cluster string) []*moveClient {
	t.Helper()
	api := installed.ThroughProxyAPI(cluster)
	// It reads Secret proxy-client for each dial, as upstream's GetKonnectivityTLSConfig
	// and clusteradm do.
	dialed := installed.ThroughDialer(cluster, func(ctx context.Context, network, address string) (net.Conn, error) {
		config, err := clientTLSNow(ctx)
		if err != nil {
			return nil, err
		}
		single, err := konnectivity.CreateSingleUseGrpcTunnelWithContext(ctx, ctx, installed.ProxyServer, grpc.WithTransportCredentials(credentials.NewTLS(config)))
		if err != nil {
			return nil, err
		}
		return single.DialContext(ctx, network, address)
	})
	clients := []*moveClient{
		startMoveClient(t, cluster, "proxy API", func(ctx context.Context) error { return suite.Once(ctx, api) }),
		startMoveClient(t, cluster, "konnectivity dial", func(ctx context.Context) error { return suite.Once(ctx, dialed) }),
		startMoveClient(t, cluster, "exposed https Service", func(ctx context.Context) error {
			return suite.Get(ctx, api, "/api/v1/namespaces/default/services/https:kubernetes:443/proxy-service/version")
		}),
	}
	if cluster != localCluster { // where the lab has no such Service
		clients = append(clients, startMoveClient(t, cluster, "exposed Service", func(ctx context.Context) error {
			return suite.Get(ctx, api, "/api/v1/namespaces/default/services/http:web:80/proxy-service/")
		}))
	}
	return append(clients, startMoveWatch(t, cluster, api))
}

// clientTLSNow makes a configuration of the Secrets as they are now.
func clientTLSNow(ctx context.Context) (*tls.Config, error) {
	secret, err := installed.Hub.CoreV1().Secrets(installed.Namespace).Get(ctx, "proxy-client", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return rest.TLSConfigFor(&rest.Config{Host: "https://" + installed.ProxyServer, TLSClientConfig: rest.TLSClientConfig{
		CAData: installed.HubCA, CertData: secret.Data["tls.crt"], KeyData: secret.Data["tls.key"], ServerName: "127.0.0.1"}})
}

func startMoveClient(t *testing.T, cluster, name string, request func(context.Context) error) *moveClient {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := &moveClient{cluster: cluster, name: name, cancel: cancel}
	suite.Eventually(t, "a first answer for "+name+" of "+cluster, func() error {
		limited, cancel := context.WithTimeout(ctx, moveRequestLimit)
		defer cancel()
		return request(limited)
	})
	c.running.Go(func() {
		tick := time.NewTicker(moveTick)
		defer tick.Stop()
		for ctx.Err() == nil {
			c.running.Go(func() {
				began := time.Now()
				limited, cancel := context.WithTimeout(context.Background(), moveRequestLimit)
				defer cancel()
				c.note(sample{began, time.Now(), request(limited)})
			})
			<-tick.C
		}
	})
	t.Cleanup(cancel)
	return c
}

// startMoveWatch follows a ConfigMap that changes at each tick; each break is a
// failure, which lasts from the last event to the next one.
func startMoveWatch(t *testing.T, cluster string, cfg *rest.Config) *moveClient {
	t.Helper()
	cs := suite.Clientset(t, installed.Direct(cluster))
	ctx, cancel := context.WithCancel(context.Background())
	c := &moveClient{cluster: cluster, name: "watch", cancel: cancel}
	c.running.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			_, _ = cs.CoreV1().ConfigMaps("default").Apply(ctx, corev1ac.ConfigMap("e2e-move", "default").WithData(map[string]string{"n": fmt.Sprint(n)}), metav1.ApplyOptions{FieldManager: "e2e", Force: true})
			select {
			case <-ctx.Done():
			case <-time.After(moveTick):
			}
		}
	})
	c.running.Go(func() {
		version, last, broken := "", time.Now(), time.Time{}
		for ctx.Err() == nil {
			err := suite.WatchConfigMap(ctx, cfg, "default", "e2e-move", version, func(raw json.RawMessage) error {
				heardOf, err := heard(raw)
				if err == nil && !broken.IsZero() {
					c.note(sample{broken, time.Now(), fmt.Errorf("the watch was cut off")})
					broken = time.Time{}
				}
				version = heardOf
				if err == nil {
					last = time.Now()
					c.note(sample{began: last, ended: last})
				}
				return err
			})
			if broken.IsZero() && err != nil {
				broken = last
			}
			select {
			case <-ctx.Done():
			case <-time.After(moveTick):
			}
		}
	})
	t.Cleanup(cancel)
	return c
}

func (c *moveClient) note(s sample) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made++
	if s.err == nil {
		c.good = s.ended
		return
	}
	c.failed = append(c.failed, s)
	c.bad = s.ended
}

// waitCalm waits until requests have gone well for a while, and still do. While they
// wait for an answer, none fails.
func (c *moveClient) waitCalm(t *testing.T) {
	t.Helper()
	err := suite.WaitUntil(context.Background(), suite.Timeout, func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if since := time.Since(c.good); since > moveCalm/2 {
			return fmt.Errorf("the last answer came %s ago", since)
		}
		if c.good.Sub(c.bad) < moveCalm {
			return fmt.Errorf("a request failed %s before the last answer: %w", c.good.Sub(c.bad), c.failed[len(c.failed)-1].err)
		}
		return nil
	})
	if err != nil {
		t.Errorf("%s is not well for its client, %s: %v", c.cluster, c.name, err)
	}
}

// localPort is one of a connection, which is another one for each.
var localPort = regexp.MustCompile(`127\.0\.0\.1:\d+`)

// stop ends the client. A request that failed stands for the time until the next
// one was made; a watch was broken from its end to its next event.
func (c *moveClient) stop(way string, replicas int, began time.Time) moveRow {
	c.cancel()
	c.running.Wait()
	row := moveRow{way: way, cluster: c.cluster, client: c.name, replicas: replicas, made: c.made, failed: len(c.failed)}
	slices.SortFunc(c.failed, func(a, b sample) int { return a.began.Compare(b.began) })
	said := map[string][]time.Duration{} // when requests with an error were made
	for _, f := range c.failed {
		if c.name == "watch" {
			row.lost += f.ended.Sub(f.began)
		} else {
			row.lost += moveTick
		}
		text := strings.TrimSpace(fmt.Sprintf("%.160s", localPort.ReplaceAllString(f.err.Error(), "127.0.0.1:…")))
		said[text] = append(said[text], f.began.Sub(began).Round(100*time.Millisecond))
	}
	if len(c.failed) > 0 {
		row.first = c.failed[0].began.Sub(began)
		row.span = c.failed[len(c.failed)-1].ended.Sub(c.failed[0].began)
	}
	for _, text := range slices.Sorted(maps.Keys(said)) {
		when := said[text]
		row.errors = append(row.errors, fmt.Sprintf("%d × %s (%s to %s)", len(when), text, when[0], when[len(when)-1]))
	}
	return row
}

func moveTable(rows []moveRow) string {
	var out bytes.Buffer
	fmt.Fprintf(&out, "A move from OCM's own cluster-proxy v0.10.0 to this release (helm upgrade --reuse-values) and back (helm rollback): what\n"+
		"clients notice. Each makes a request on a connection of its own each second and waits up to %s, or follows a\n"+
		"watch. NEW FAIL FOR is the time in which new requests fail, or a watch has no events; FIRST is after helm began, SPAN\n"+
		"from the first to the last. The cluster local-cluster is the hub itself. Written by make e2e-move.\n\n", moveRequestLimit)
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "MOVE\tREPLICAS\tCLUSTER\tCLIENT\tMADE\tFAILED\tNEW FAIL FOR\tFIRST\tSPAN")
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%d\t%d\t%s\t%s\t%s\n", r.way, r.replicas, r.cluster, r.client, r.made, r.failed,
			r.lost.Round(100*time.Millisecond), r.first.Round(100*time.Millisecond), r.span.Round(100*time.Millisecond))
	}
	_ = w.Flush()
	return out.String()
}
