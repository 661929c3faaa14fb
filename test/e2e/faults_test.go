package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/lab/nodes"
)

// fault is something that goes wrong on the way between a managed cluster and
// the hub.
type fault struct {
	name  string
	hold  time.Duration
	begin func(f *faultLab) error
	end   func(f *faultLab) error
	// pass says that requests must go on during the fault; others may fail, but
	// must be told so.
	pass bool
	// onHub says that it is the hub that suffers, and so every cluster.
	onHub bool
}

// faultLab is where faults are made: the machine of one cluster, and the hub's.
type faultLab struct {
	t       *testing.T
	cluster string
	nodes   *nodes.Lab
}

// rules puts nft rules on the way; removing the table ends them.
func rules(chains string) func(f *faultLab) error {
	return func(f *faultLab) error {
		return f.nodes.RunInput(f.cluster, "table inet fault {\n"+chains+"\n}\n", "nft", "-f", "-")
	}
}

func noRules(f *faultLab) error {
	return f.nodes.Run(f.cluster, "nft", "delete", "table", "inet", "fault")
}

const (
	fromHub = "chain in { type filter hook prerouting priority raw; iifname \"wan0\" %s; }"
	toHub   = "chain out { type filter hook postrouting priority srcnat + 10; oifname \"wan0\" %s; }"
)

// shell runs commands on the cluster's machine and on the hub's.
func shell(script string) func(f *faultLab) error {
	return func(f *faultLab) error {
		for _, name := range []string{f.cluster, "hub"} {
			if err := f.nodes.Run(name, "sh", "-ec", script); err != nil {
				return err
			}
		}
		return nil
	}
}

func coreDNS(replicas int) func(f *faultLab) error {
	return func(f *faultLab) error {
		for _, cs := range []*rest.Config{suite.lab.Hub.RESTConfig(), suite.lab.Managed[f.cluster].RESTConfig()} {
			_, err := clientset(f.t, cs).AppsV1().Deployments("kube-system").Patch(context.Background(), "coredns", types.MergePatchType,
				fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
			if err != nil {
				return err
			}
		}
		return nil
	}
}

func lossOf(percent int) string {
	drop := fmt.Sprintf("numgen random mod 100 < %d drop", percent)
	return fmt.Sprintf(fromHub, drop) + "\n" + fmt.Sprintf(toHub, drop)
}

func faults() []fault {
	const hubAPI = "kube-apiserver"
	return []fault{
		{name: "none", hold: 10 * time.Second, begin: shell("true"), end: shell("true"), pass: true},
		{name: "black hole", hold: time.Minute, begin: rules(fmt.Sprintf(fromHub, "drop") + "\n" + fmt.Sprintf(toHub, "drop")), end: noRules},
		{name: "one way: nothing from the hub", hold: time.Minute, begin: rules(fmt.Sprintf(fromHub, "drop")), end: noRules},
		{name: "one way: nothing to the hub", hold: time.Minute, begin: rules(fmt.Sprintf(toHub, "drop")), end: noRules},
		{name: "every connection reset", hold: time.Second, begin: rules("chain f { type filter hook forward priority -10; meta l4proto tcp iifname \"wan0\" reject with tcp reset; meta l4proto tcp oifname \"wan0\" reject with tcp reset; }"), end: noRules},
		{name: "1 % loss", hold: 20 * time.Second, begin: rules(lossOf(1)), end: noRules, pass: true},
		{name: "5 % loss", hold: 20 * time.Second, begin: rules(lossOf(5)), end: noRules, pass: true},
		{name: "NAT forgets after 5 s", hold: 30 * time.Second, pass: true,
			begin: func(f *faultLab) error {
				return f.nodes.Run(f.cluster, "sh", "-ec", "cd /proc/sys/net/netfilter; echo 5 >nf_conntrack_tcp_timeout_established; echo 0 >nf_conntrack_tcp_loose")
			},
			end: func(f *faultLab) error {
				return f.nodes.Run(f.cluster, "sh", "-ec", "cd /proc/sys/net/netfilter; echo 432000 >nf_conntrack_tcp_timeout_established; echo 1 >nf_conntrack_tcp_loose")
			}},
		{name: "MTU 1280", hold: 20 * time.Second, begin: shell("ip link set wan0 mtu 1280"), end: shell("ip link set wan0 mtu 1500"), pass: true},
		{name: "1 Mbit/s", hold: 20 * time.Second, pass: true,
			begin: shell("tc qdisc add dev wan0 root tbf rate 1mbit burst 16kb latency 500ms"), end: shell("tc qdisc del dev wan0 root")},
		{name: "hub's kube-apiserver down", hold: 20 * time.Second, onHub: true,
			begin: func(f *faultLab) error { return f.machine("hub").Stop(context.Background(), hubAPI) },
			end:   func(*faultLab) error { return suite.lab.StartHubAPI() }},
		{name: "cluster DNS gone on both", hold: 30 * time.Second, pass: true, begin: coreDNS(0), end: coreDNS(1)},
	}
}

func (f *faultLab) machine(name string) *nodes.Machine {
	m, err := f.nodes.Machine(name)
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// sample is one request, or one stretch of a watch between two breaks.
type sample struct {
	began, ended time.Time
	err          error
}

// sampler makes requests at fixed times, whether earlier ones have ended or not,
// and follows a watch.
type sampler struct {
	mu       sync.Mutex
	requests []sample
	breaks   []sample
	waiting  sync.WaitGroup
}

// requestLimit is how long a client waits. An answer later than this is none.
const requestLimit = 40 * time.Second

func (s *sampler) run(ctx context.Context, cluster string) {
	cfg := suite.throughProxyAPI(cluster)
	s.waiting.Go(func() {
		tick := time.NewTicker(250 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			s.waiting.Go(func() {
				began := time.Now()
				limited, cancel := context.WithTimeout(context.Background(), requestLimit)
				defer cancel()
				err := once(limited, cfg)
				s.add(&s.requests, sample{began, time.Now(), err})
			})
			<-tick.C
		}
	})
	s.waiting.Go(func() {
		for ctx.Err() == nil {
			began := time.Now()
			err := watchConfigMap(ctx, cfg, "default", "e2e-faults", "", func(json.RawMessage) error { return nil })
			if ctx.Err() == nil {
				s.add(&s.breaks, sample{began, time.Now(), err})
			}
			select {
			case <-ctx.Done():
			case <-time.After(500 * time.Millisecond):
			}
		}
	})
}

// change changes the ConfigMap that is watched four times a second, without the
// addon.
func (s *sampler) change(ctx context.Context, maps typedcorev1.ConfigMapInterface) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ctx.Err() == nil; n++ {
		_, _ = maps.Apply(ctx, corev1ac.ConfigMap("e2e-faults", "default").WithData(map[string]string{"n": fmt.Sprint(n)}), metav1.ApplyOptions{FieldManager: "e2e"})
		<-tick.C
	}
}

func (s *sampler) add(to *[]sample, one sample) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*to = append(*to, one)
}

// outcome is a line of the table.
type outcome struct {
	fault                             fault
	began, ended                      time.Time
	ok, failed, silent, other         int
	slowest, told, recovered, watched time.Duration
	errors                            map[string]int // for the log
}

func (o *outcome) read(hurt, other *sampler) {
	for _, r := range hurt.requests {
		took := r.ended.Sub(r.began)
		during := r.ended.After(o.began) && r.began.Before(o.ended)
		switch {
		case !during:
		case r.err == nil:
			o.ok++
			o.slowest = max(o.slowest, took)
		case took >= requestLimit:
			o.silent++
		default:
			o.errors[fmt.Sprintf("%.160s", strings.ReplaceAll(r.err.Error(), "\n", " "))]++
			o.failed++
			o.told = max(o.told, took)
		}
		if r.err == nil && r.began.After(o.ended) && (o.recovered == 0 || r.ended.Sub(o.ended) < o.recovered) {
			o.recovered = r.ended.Sub(o.ended)
		}
	}
	for _, r := range other.requests {
		if r.err != nil {
			o.other++
		}
	}
	for _, b := range hurt.breaks {
		if b.ended.After(o.began) && o.watched == 0 {
			o.watched = b.ended.Sub(o.began)
		}
	}
}

// TestFaults breaks the network of one cluster in many ways, one after the
// other, and writes down what its clients notice. make e2e-faults runs it.
func TestFaults(t *testing.T) {
	needNodes(t)
	file := os.Getenv("E2E_FAULTS")
	if file == "" {
		t.Skip("takes ten minutes: make e2e-faults")
	}
	f := &faultLab{t: t, cluster: suite.clusters[0], nodes: suite.lab.Nodes()}
	var outcomes []*outcome
	for _, fault := range faults() {
		t.Run(fault.name, func(t *testing.T) {
			f.t = t
			o := &outcome{fault: fault, errors: map[string]int{}}
			outcomes = append(outcomes, o)
			f.suffer(t, o)
			t.Log("\n" + table([]*outcome{o}))
			for text, times := range o.errors {
				t.Logf("%d times: %s", times, text)
			}
		})
	}
	text := heading + table(outcomes)
	t.Log("\n" + text)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}

// suffer makes one fault, and ends it, with clients at work from before until
// after it.
func (f *faultLab) suffer(t *testing.T, o *outcome) {
	settle(t) // after the fault before this one
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hurt, other := &sampler{}, &sampler{}
	for i, s := range []*sampler{hurt, other} {
		maps := clientset(t, suite.direct(suite.clusters[i])).CoreV1().ConfigMaps("default")
		s.waiting.Go(func() { s.change(ctx, maps) })
		s.run(ctx, suite.clusters[i])
		eventually(t, "a first success", func() error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !slices.ContainsFunc(s.requests, func(r sample) bool { return r.err == nil }) {
				return fmt.Errorf("%d requests, none went well", len(s.requests))
			}
			return nil
		})
	}
	wait := func(d time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(d):
		}
	}
	wait(2 * time.Second) // the watch is there too
	o.began = time.Now()
	if err := o.fault.begin(f); err != nil {
		t.Fatal(err)
	}
	wait(o.fault.hold)
	if err := o.fault.end(f); err != nil {
		t.Fatal(err)
	}
	o.ended = time.Now()
	eventually(t, "requests that go well again", func() error { return reachable(ctx, f.cluster) })
	wait(3 * time.Second)
	cancel()
	hurt.waiting.Wait()
	other.waiting.Wait()
	o.read(hurt, other)
	if o.silent > 0 {
		t.Errorf("%d requests had no answer in %s", o.silent, requestLimit)
	}
	if o.fault.pass && o.failed > 0 {
		t.Errorf("%d requests failed, in at most %s; this fault must not fail any", o.failed, o.told)
	}
	if o.other > 0 && !o.fault.onHub {
		t.Errorf("%d requests to the other cluster failed", o.other)
	}
}

const heading = `Faults between one managed cluster and the hub: what clients of the proxy API notice. Each makes a request on a
connection of its own four times a second and waits up to 40 s, or follows a watch. Written by make e2e-faults.

`

func table(outcomes []*outcome) string {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "FAULT\tFOR\tWENT WELL\tSLOWEST\tFAILED\tTOLD WITHIN\tNO ANSWER\tWATCH TOLD AFTER\tWELL AGAIN AFTER\tOTHER CLUSTER FAILED")
	for _, o := range outcomes {
		watched := "not broken"
		if o.watched > 0 {
			watched = round(o.watched)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%d\t%s\t%s\t%d\n", o.fault.name, o.ended.Sub(o.began).Round(time.Second), o.ok, round(o.slowest), o.failed, round(o.told), o.silent, watched, round(o.recovered), o.other)
	}
	_ = w.Flush()
	return out.String()
}

func round(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return d.Round(10 * time.Millisecond).String()
}
