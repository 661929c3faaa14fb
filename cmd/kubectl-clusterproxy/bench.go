package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
)

const (
	// The bounds of what a user may do to a cluster with bench.
	mostConcurrent = 64
	longestBench   = 2 * time.Minute
	// benchTimeout bounds one request, and benchBody what is read of its answer.
	benchTimeout = 30 * time.Second
	benchBody    = 64 << 20
)

// benchOptions are the flags of bench.
type benchOptions struct {
	output, path string
	duration     time.Duration
	concurrency  int
}

// measured is what came of the requests to one place.
type measured struct {
	Where    string  `json:"where"`
	Requests int     `json:"requests"`
	Failed   int     `json:"failed"`
	PerSec   float64 `json:"perSecond"`
	// In milliseconds, of requests that did not fail: until the whole answer was there, and
	// until its first byte.
	P50         float64 `json:"p50"`
	P90         float64 `json:"p90"`
	P99         float64 `json:"p99"`
	FirstByte50 float64 `json:"firstByteP50"`
	// Failure is the last one.
	Failure string `json:"failure,omitempty"`
}

func (p *plugin) benchCommand() *cobra.Command {
	o := benchOptions{}
	cmd := &cobra.Command{
		Use:   "bench CLUSTER",
		Short: "Measure for some seconds how fast a cluster answers you, beside the hub's own kube-apiserver",
		Long: `Measure for some seconds how fast a cluster answers you, beside the hub's own kube-apiserver. The same GET goes to the hub first, then to the
cluster, from as many workers as --concurrency says, each of which sends its next request when it has the answer. The difference is what
the way to the cluster costs. Nothing is changed; but others share the cluster, and your requests count for limits (429).`,
		Example:           "  kubectl clusterproxy bench cluster1\n  kubectl clusterproxy bench cluster1 --duration=30s --concurrency=16 --path='/api/v1/pods?limit=500'",
		Args:              arguments(1, 1),
		ValidArgsFunction: p.completeOneCluster,
		RunE:              func(cmd *cobra.Command, args []string) error { return p.bench(cmd.Context(), args[0], o) },
	}
	outputFlag(cmd, &o.output, "json", "yaml")
	cmd.Flags().DurationVar(&o.duration, "duration", 10*time.Second, fmt.Sprintf("how long to measure each place; at most %s", longestBench))
	cmd.Flags().IntVar(&o.concurrency, "concurrency", 4, fmt.Sprintf("requests at a time; at most %d", mostConcurrent))
	cmd.Flags().StringVar(&o.path, "path", "/version", "what to GET")
	return cmd
}

func (o benchOptions) check() error {
	switch {
	case o.duration <= 0 || o.duration > longestBench:
		return fmt.Errorf("--duration is %s: it must be more than 0 and at most %s", o.duration, longestBench)
	case o.concurrency < 1 || o.concurrency > mostConcurrent:
		return fmt.Errorf("--concurrency is %d: it must be 1 to %d", o.concurrency, mostConcurrent)
	case !strings.HasPrefix(o.path, "/"):
		return fmt.Errorf("--path is %q: it must begin with a slash, as /api/v1/namespaces does", o.path)
	}
	return nil
}

func (p *plugin) bench(ctx context.Context, cluster string, o benchOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	to, err := p.configFor(ctx, cluster)
	if err != nil {
		return err
	}
	hub, err := p.hubConfig()
	if err != nil {
		return err
	}
	fmt.Fprintf(p.err, "GET %s for %s each from the hub and from %s, %d at a time. Ctrl-C ends it early.\n", oneLine(o.path), o.duration, oneLine(cluster), o.concurrency)
	var found []measured
	for _, place := range []struct {
		name   string
		config *rest.Config
	}{{"hub", hub}, {cluster, to}} {
		one, err := measure(ctx, place.name, place.config, o)
		if err != nil {
			return err
		}
		found = append(found, one)
	}
	printed, err := p.print(o.output, listOf("BenchmarkList", found))
	if err == nil && !printed {
		err = p.benchTable(found)
	}
	if err == nil && found[1].Failed > 0 {
		return errNotGood
	}
	return err
}

// measure sends requests until the time is over.
func measure(ctx context.Context, where string, config *rest.Config, o benchOptions) (measured, error) {
	unlimited := rest.CopyConfig(config)
	unlimited.Timeout = benchTimeout
	client, err := rest.HTTPClientFor(unlimited)
	if err != nil {
		return measured{}, err
	}
	defer client.CloseIdleConnections()
	url, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return measured{}, err
	}
	m := &meter{client: client, url: strings.TrimSuffix(url.String(), "/") + o.path}
	if _, err := m.once(ctx); err != nil && ctx.Err() == nil { // the first one makes the connection
		return measured{Where: where, Requests: 1, Failed: 1, Failure: err.Error()}, nil
	}
	began := time.Now()
	var workers sync.WaitGroup
	for range o.concurrency {
		workers.Go(func() { m.work(ctx, began.Add(o.duration)) })
	}
	workers.Wait()
	return m.result(where, time.Since(began)), nil
}

// taken is how long a request took.
type taken struct{ first, whole time.Duration }

// meter counts requests to one place.
type meter struct {
	client *http.Client
	url    string

	mu      sync.Mutex
	good    []taken
	failed  int
	failure string
}

// work sends one request after the other until the time is over. The last one comes to its end:
// without the slow ones, the others would look better than they are.
func (m *meter) work(ctx context.Context, until time.Time) {
	for again := true; again; again = time.Now().Before(until) {
		one, err := m.once(ctx)
		if ctx.Err() != nil {
			return
		}
		m.mu.Lock()
		if err != nil {
			m.failed, m.failure = m.failed+1, err.Error()
		} else {
			m.good = append(m.good, one)
		}
		m.mu.Unlock()
	}
}

func (m *meter) once(ctx context.Context) (taken, error) {
	var one taken
	began := time.Now()
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: func() { one.first = time.Since(began) }})
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url, nil)
	if err != nil {
		return one, err
	}
	request.Header.Set("Accept", "application/json")
	response, err := m.client.Do(request)
	if err != nil {
		return one, err
	}
	defer response.Body.Close()
	start, err := io.ReadAll(io.LimitReader(response.Body, 300))
	if err == nil {
		_, err = io.Copy(io.Discard, io.LimitReader(response.Body, benchBody))
	}
	if err == nil && response.StatusCode != http.StatusOK {
		err = errors.New(response.Status + " " + string(start))
	}
	one.whole = time.Since(began)
	return one, err
}

func (m *meter) result(where string, took time.Duration) measured {
	of := measured{Where: where, Requests: len(m.good) + m.failed, Failed: m.failed, Failure: m.failure, PerSec: float64(len(m.good)) / took.Seconds()}
	whole, first := make([]time.Duration, len(m.good)), make([]time.Duration, len(m.good))
	for i, one := range m.good {
		whole[i], first[i] = one.whole, one.first
	}
	slices.Sort(whole)
	slices.Sort(first)
	of.P50, of.P90, of.P99, of.FirstByte50 = quantile(whole, 50), quantile(whole, 90), quantile(whole, 99), quantile(first, 50)
	return of
}

// quantile returns the time in milliseconds that so many percent of sorted times do not exceed.
func quantile(sorted []time.Duration, percent int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	i := (len(sorted)*percent+99)/100 - 1
	return float64(sorted[max(i, 0)].Microseconds()) / 1000
}

func (p *plugin) benchTable(found []measured) error {
	w := tabwriter.NewWriter(p.out, 0, 0, 3, ' ', 0)
	writeRow(w, "WHERE", "REQUESTS", "PER SECOND", "P50 MS", "P90 MS", "P99 MS", "FIRST BYTE P50 MS", "FAILED")
	for _, m := range found {
		times := []string{"", "", "", "", ""}
		if m.Requests > m.Failed {
			for i, v := range []float64{m.PerSec, m.P50, m.P90, m.P99, m.FirstByte50} {
				times[i] = fmt.Sprintf("%.1f", v)
			}
		}
		writeRow(w, slices.Concat([]string{m.Where, fmt.Sprint(m.Requests)}, times, []string{fmt.Sprint(m.Failed)})...)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, m := range found {
		if m.Failure != "" {
			fmt.Fprintf(p.err, "%s: the last failure: %s\n", oneLine(m.Where), oneLine(m.Failure))
		}
	}
	if last := found[len(found)-1]; last.Failed > 0 {
		fmt.Fprintf(p.err, "see: kubectl clusterproxy test %s\n", oneLine(last.Where))
	}
	return nil
}
