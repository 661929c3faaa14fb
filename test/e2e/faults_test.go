package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/bench/ground"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
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
	// hubUser has the requests made by a user of the hub, and not by one whom only
	// the cluster knows.
	hubUser bool
	// silence is how long clients do nothing before each burst of requests, on
	// connections that have been idle for as long.
	silence time.Duration
	// bulk has others download as much as they can meanwhile.
	bulk bool
	// brief says that CI makes this fault too.
	brief bool
	// narrow says that the network is what they have too little of, and not the
	// machine's processors.
	narrow bool
}

// Limits of what clients may notice. The first is that of every fault, also of one
// during which no request can go well.
const (
	toldLimit    = 32 * time.Second // 30 s without a word from the peer, and the answer's way
	watchLimit   = 45 * time.Second
	againLimit   = 30 * time.Second
	eventLimit   = 10 * time.Second // of a fault that lets requests pass
	busyLimit    = 15 * time.Second // p99 of small requests beside downloads that take the whole machine
	smallLimit   = time.Second      // the same where the network is narrow, or twice that of ones with connections of their own
	fairnessBest = 0.7              // Jain's index of the downloads
)

// firstSuccesses is how many requests go well before a fault. Each has a
// connection of its own, so every replica of the proxy API has served some: what
// it remembers while the hub cannot be asked is its own.
const firstSuccesses = 20

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
		for _, cs := range []*rest.Config{installed.HubConfig(), installed.AdminConfig(f.cluster)} {
			_, err := suite.Clientset(f.t, cs).AppsV1().Deployments("kube-system").Patch(context.Background(), "coredns", types.MergePatchType,
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
		{name: "black hole for 5 s", hold: 5 * time.Second, brief: true, begin: rules(fmt.Sprintf(fromHub, "drop") + "\n" + fmt.Sprintf(toHub, "drop")), end: noRules, pass: true},
		{name: "one way: nothing from the hub", hold: time.Minute, begin: rules(fmt.Sprintf(fromHub, "drop")), end: noRules},
		{name: "one way: nothing to the hub", hold: time.Minute, begin: rules(fmt.Sprintf(toHub, "drop")), end: noRules},
		{name: "every connection reset", hold: time.Second, brief: true, begin: rules("chain f { type filter hook forward priority -10; meta l4proto tcp iifname \"wan0\" reject with tcp reset; meta l4proto tcp oifname \"wan0\" reject with tcp reset; }"), end: noRules},
		{name: "downloads, no fault", hold: 15 * time.Second, begin: shell("true"), end: shell("true"), pass: true, bulk: true},
		{name: "1 % loss, downloads", hold: 20 * time.Second, begin: rules(lossOf(1)), end: noRules, pass: true, bulk: true},
		{name: "5 % loss, downloads", hold: 20 * time.Second, begin: rules(lossOf(5)), end: noRules, pass: true, bulk: true},
		{name: "NAT forgets after 60 s, 70 s idle", hold: 75 * time.Second, begin: natForgets(60), end: natForgets(432000), pass: true, silence: 70 * time.Second},
		{name: "NAT forgets after 5 s, 12 s idle", hold: 50 * time.Second, begin: natForgets(5), end: natForgets(432000), silence: 12 * time.Second},
		// Both ends think that 1,500 bytes pass, and nothing tells them otherwise.
		{name: "MTU 1280 in the middle, no ICMP, downloads", hold: 60 * time.Second, bulk: true, begin: rules(fmt.Sprintf(fromHub, "meta length > 1280 drop") + "\n" + fmt.Sprintf(toHub, "meta length > 1280 drop")), end: noRules},
		{name: "1 Mbit a second, downloads", hold: 80 * time.Second, pass: true, bulk: true, narrow: true,
			begin: shell("tc qdisc add dev wan0 root tbf rate 1mbit burst 16kb latency 500ms"), end: shell("tc qdisc del dev wan0 root")},
		{name: "hub's kube-apiserver slow", hold: 20 * time.Second, brief: true, pass: true, hubUser: true, begin: slowHub, end: quickHub},
		{name: "cluster's kube-apiserver silent", hold: time.Minute, begin: rules(silentTarget), end: noRules},
		{name: "cluster DNS gone on both", hold: 30 * time.Second, pass: true, begin: coreDNS(0), end: coreDNS(1)},
		// The last one: half a minute later Kubernetes takes the hub's pods out of Services for as long, because it has
		// heard nothing of their node.
		{name: "hub's kube-apiserver down", hold: time.Minute, pass: true, hubUser: true,
			begin: func(f *faultLab) error { return f.machine("hub").Stop(context.Background(), hubAPI) },
			end:   func(*faultLab) error { return installed.Lab.StartHubAPI() }},
	}
}

// silentTarget drops what pods send to their own kube-apiserver. Others reach it.
const silentTarget = "chain target { type filter hook input priority 0; iifname != \"lo\" iifname != \"wan0\" tcp dport 6443 drop; }"

// slowHub freezes the hub's kube-apiserver for two seconds again and again, until quickHub ends it.
func slowHub(f *faultLab) error {
	return f.nodes.Run("hub", "sh", "-ec", "echo >/run/slow; (while [ -e /run/slow ]; do busybox killall -STOP kube-apiserver; sleep 2; busybox killall -CONT kube-apiserver; sleep 0.2; done) </dev/null >/dev/null 2>&1 &")
}

func quickHub(f *faultLab) error {
	// The loop ends with a process that goes on.
	return f.nodes.Run("hub", "sh", "-ec", "rm /run/slow; sleep 3; busybox killall -CONT kube-apiserver")
}

// natForgets has the cluster's NAT drop what it has not seen for so many seconds:
// the fence in front of it lets in what the NAT knows, and nothing else.
func natForgets(seconds int) func(f *faultLab) error {
	return func(f *faultLab) error {
		// The timeout of a connection is set when a packet passes.
		loose := 0
		if seconds > 1000 {
			loose = 1
		}
		return f.nodes.Run(f.cluster, "sh", "-ec", fmt.Sprintf("cd /proc/sys/net/netfilter; echo %d >nf_conntrack_tcp_timeout_established; echo %d >nf_conntrack_tcp_loose", seconds, loose))
	}
}

func (f *faultLab) machine(name string) *nodes.Machine {
	m, err := f.nodes.Machine(name)
	if err != nil {
		f.t.Fatal(err)
	}
	return m
}

// outcome is a line of the table.
type outcome struct {
	fault                             fault
	began, ended                      time.Time
	ok, failed, silent, other         int
	downloads                         int // that failed
	slowest, told, recovered, watched time.Duration
	small, own                        time.Duration // p99 of what went well, and of requests with connections of their own
	events, lost                      int
	latest                            time.Duration // of the events
	goodput                           float64       // of all downloads, in Mbit/s
	fairness                          float64
	errors                            map[string]int // for the log
}

func (o *outcome) read(hurt, other *sampler) {
	o.small = hurt.p99(o.began, o.ended)
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
	for version, changed := range hurt.changes {
		if changed.Before(o.began) {
			continue
		}
		o.events++
		heard, ok := hurt.heard[version]
		if !ok {
			o.lost++
		}
		o.latest = max(o.latest, heard.Sub(changed))
	}
}

// check holds a fault to what clients may notice of it.
func (o *outcome) check(t *testing.T) {
	t.Helper()
	if o.silent > 0 {
		t.Errorf("%d requests had no answer in %s", o.silent, requestLimit)
	}
	if o.told > toldLimit {
		t.Errorf("a request was told of its failure after %s, want %s at most", o.told, toldLimit)
	}
	if o.watched > watchLimit {
		t.Errorf("the watch was told that it is broken after %s, want %s at most", o.watched, watchLimit)
	}
	if o.recovered > againLimit {
		t.Errorf("requests went well %s after the fault, want %s at most", o.recovered, againLimit)
	}
	if o.events == 0 || o.lost > 0 {
		t.Errorf("the watch lost %d of %d events", o.lost, o.events)
	}
	if o.other > 0 {
		t.Errorf("%d requests to the other cluster failed", o.other)
	}
	if o.fault.bulk && o.fault.pass {
		if o.fairness < fairnessBest {
			t.Errorf("Jain's index of the downloads is %.2f, want %.2f at least", o.fairness, fairnessBest)
		}
		limit := busyLimit
		if o.fault.narrow {
			limit = max(smallLimit, 2*o.own)
		}
		if o.small > limit {
			t.Errorf("p99 of small requests beside downloads is %s, want %s at most; on connections of their own it is %s", o.small, limit, o.own)
		}
	}
	if !o.fault.pass {
		return
	}
	if o.downloads > 0 {
		t.Errorf("%d downloads failed", o.downloads)
	}
	if o.failed > 0 {
		t.Errorf("%d requests failed, in at most %s; this fault must not fail any", o.failed, o.told)
	}
	if o.watched > 0 || o.latest > eventLimit {
		t.Errorf("the watch broke after %s (0: it did not), and heard an event %s late; this fault must not break it, nor make it late by more than %s", o.watched, o.latest, eventLimit)
	}
}

// TestFaults breaks the network of one cluster in many ways, one after the other,
// and looks at what its clients notice. make e2e-faults has it break it in all ways,
// and write that down. It disturbs one cluster's network, and puts it back after each fault.
func TestFaults(t *testing.T) {
	needNodes(t)
	file := os.Getenv("E2E_FAULTS")
	f := &faultLab{t: t, cluster: installed.Clusters[0], nodes: installed.Lab.Nodes()}
	var outcomes []*outcome
	for _, fault := range faults() {
		if file == "" && !fault.brief {
			continue // fifteen minutes
		}
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
	if file == "" {
		return
	}
	if err := ground.Record(file, text); err != nil {
		t.Error(err)
	}
}

// suffer makes one fault, and ends it, with clients at work from before until
// after it.
func (f *faultLab) suffer(t *testing.T, o *outcome) {
	installed.Settle(t) // after the fault before this one
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hurt, other := &sampler{silence: o.fault.silence}, &sampler{}
	for i, s := range []*sampler{hurt, other} {
		s.changes, s.heard = map[string]time.Time{}, map[string]time.Time{}
		maps := suite.Clientset(t, installed.Direct(installed.Clusters[i])).CoreV1().ConfigMaps("default")
		s.waiting.Go(func() { s.change(ctx, maps) })
		cfg := installed.ThroughProxyAPI(installed.Clusters[i])
		if o.fault.hubUser {
			cfg.BearerToken = installed.HubToken
		}
		s.run(ctx, cfg)
		suite.Eventually(t, "first successes", func() error {
			if well := s.wentWell(); well < firstSuccesses {
				return fmt.Errorf("%d requests went well, want %d", well, firstSuccesses)
			}
			return nil
		})
	}
	own := &sampler{}
	if o.fault.bulk {
		own.ask(ctx, f.ownConnections(t))
		suite.Eventually(t, "first successes without the addon", func() error {
			if own.wentWell() == 0 {
				return errors.New("none")
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
	suite.Eventually(t, "the watch to hear something", func() error {
		hurt.mu.Lock()
		defer hurt.mu.Unlock()
		if len(hurt.heard) == 0 {
			return errors.New("it has heard nothing")
		}
		return nil
	})
	o.began = time.Now()
	if err := o.fault.begin(f); err != nil {
		t.Fatal(err)
	}
	if o.fault.silence > 0 {
		wait(time.Second) // what is open learns of the new timeout by its next packet
		hurt.quiet.Store(true)
	}
	downloads := &downloads{}
	if o.fault.bulk {
		downloads.start(ctx, t, f.cluster)
	}
	wait(o.fault.hold)
	hurt.quiet.Store(false)
	o.goodput, o.fairness = downloads.figures()
	o.downloads = int(downloads.failed.Load())
	if err := o.fault.end(f); err != nil {
		t.Fatal(err)
	}
	o.ended = time.Now()
	suite.Eventually(t, "requests that go well again", func() error { return installed.Reachable(ctx, f.cluster) })
	suite.Eventually(t, "the watch to hear everything", func() error {
		hurt.mu.Lock()
		defer hurt.mu.Unlock()
		lost := 0
		for version, changed := range hurt.changes {
			if _, ok := hurt.heard[version]; !ok && changed.After(o.began) && time.Since(changed) > time.Second {
				lost++
			}
		}
		if lost > 0 {
			return fmt.Errorf("it lacks %d events", lost)
		}
		return nil
	})
	wait(time.Second)
	hurt.quiet.Store(true) // no more changes, so that the last one can be heard
	wait(2 * time.Second)
	cancel()
	hurt.waiting.Wait()
	other.waiting.Wait()
	own.waiting.Wait()
	o.own = own.p99(o.began, o.ended)
	o.read(hurt, other)
	t.Logf("requests of more than %s: %s; on connections of their own: %s", smallLimit, hurt.slow(o.began, o.ended), own.slow(o.began, o.ended))
	o.check(t)
}

const heading = `Faults between one managed cluster and the hub: what clients of the proxy API notice. Each makes a request on a
connection of its own four times a second and waits up to 40 s, or follows a watch of an object that changes four times
a second, and goes on with it where it broke. "Idle" has them do nothing for that long, then two seconds' work.
"Downloads" are four users beside them who read 900 KiB again and again: Mbit/s of all, and Jain's index of fairness
among them; "own" is the p99 of requests beside them that do without the addon, on connections of their own. All columns are held to limits by TestFaults. Written by make e2e-faults.

`

func table(outcomes []*outcome) string {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "FAULT\tFOR\tWENT WELL\tP99\tOWN P99\tSLOWEST\tFAILED\tTOLD WITHIN\tNO ANSWER\tWATCH TOLD AFTER\tEVENTS LOST\tLATEST EVENT\tWELL AGAIN AFTER\tOTHER CLUSTER FAILED\tMBIT/S\tJAIN")
	for _, o := range outcomes {
		watched := "not broken"
		if o.watched > 0 {
			watched = round(o.watched)
		}
		goodput, fairness := "", ""
		if o.fault.bulk {
			goodput, fairness = fmt.Sprintf("%.1f", o.goodput), fmt.Sprintf("%.2f", o.fairness)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\t%s\t%d\t%s\t%d\t%s\t%d of %d\t%s\t%s\t%d\t%s\t%s\n", o.fault.name, o.ended.Sub(o.began).Round(time.Second), o.ok, round(o.small), round(o.own), round(o.slowest),
			o.failed, round(o.told), o.silent, watched, o.lost, o.events, round(o.latest), round(o.recovered), o.other, goodput, fairness)
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
