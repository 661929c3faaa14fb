package soak

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// Names of the addon's processes, as package suite has them.
const (
	addonManager = "addon manager"
	proxyServer  = "proxy server"
	proxyAPI     = "proxy API"
	proxyAgent   = "proxy agent"
	fleetIndex   = "fleet index"
)

// How long after a fault its clients may still notice it. The addon's promises are
// in test/faults.md; a machine whose processors are all busy needs a little more.
const (
	// killedGrace is for requests that were under way, and the seconds in which others find
	// out.
	killedGrace = 5 * time.Second
	// askedGrace is the time in which a process that was asked to end lets streams end.
	askedGrace = 40 * time.Second
	// frozenGrace is how long a peer may be silent until it is known to be gone.
	frozenGrace = 32 * time.Second
	// aggregatedGrace is how long the hub's kube-apiserver takes to see that the proxy API
	// is there.
	aggregatedGrace = 15 * time.Second
	// agentGrace is how long a cluster's only agent takes to be there again.
	agentGrace = 20 * time.Second
)

// breaker makes faults.
type breaker struct {
	t       *testing.T
	s       *suite.Suite
	random  *rand.Rand
	kinds   []kindOf
	spared  map[string]bool // pods that survive, by namespace and name
	rotated time.Time
	windows []window
	times   map[string]int // how often there was each kind of fault
	// takesAway has the last cluster go for longer at times.
	takesAway bool
}

// newBreaker spares the first pod of each kind on the hub, and the agents of the first cluster:
// what grows is seen in processes that live long.
func newBreaker(t *testing.T, s *suite.Suite, seed uint64, kinds []kindOf) *breaker {
	b := &breaker{t: t, s: s, random: rand.New(rand.NewPCG(seed, 0)), kinds: kinds, spared: map[string]bool{}, rotated: time.Now(), times: map[string]int{}}
	for _, k := range kinds {
		names, err := k.Pods(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case k.Name == proxyAgent && k.cluster == s.Clusters[0]:
			for _, name := range names {
				b.spared[k.Namespace+"/"+name] = true
			}
		case k.Name != proxyAgent && len(names) > 1:
			b.spared[k.Namespace+"/"+names[0]] = true
		}
	}
	return b
}

// victims are pods of a kind that may be hurt.
func (b *breaker) victims(k kindOf) (names []string) {
	all, err := k.Pods(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	for _, name := range all {
		if !b.spared[k.Namespace+"/"+name] {
			names = append(names, name)
		}
	}
	return names
}

// rotateEvery is how often a certificate is issued again.
const rotateEvery = 2 * time.Minute

// next makes a fault, and returns when it is over.
func (b *breaker) next() {
	if time.Since(b.rotated) > rotateEvery {
		b.rotated = time.Now()
		b.rotate()
		return
	}
	if b.random.IntN(8) == 0 {
		b.restartAPIServer(b.s.Clusters[b.random.IntN(len(b.s.Clusters))])
		return
	}
	if b.takesAway && b.random.IntN(8) == 0 {
		b.takeAway(b.s.Clusters[len(b.s.Clusters)-1])
		return
	}
	var able []kindOf
	for _, k := range b.kinds {
		if len(b.victims(k)) > 0 {
			able = append(able, k)
		}
	}
	k := able[b.random.IntN(len(able))]
	victims := b.victims(k)
	victim := victims[b.random.IntN(len(victims))]
	switch b.random.IntN(3) {
	case 0:
		b.during(k, "SIGKILL", "", victim, func() { k.Kill(b.t, victim) })
	case 1:
		b.during(k, "SIGTERM", "", victim, func() {
			if err := k.Client.CoreV1().Pods(k.Namespace).Delete(b.t.Context(), victim, metav1.DeleteOptions{}); err != nil {
				b.t.Fatal(err)
			}
		})
	case 2:
		frozen := time.Duration(5+b.random.IntN(11)) * time.Second
		b.during(k, "SIGSTOP", " for "+frozen.String(), victim, func() { b.freeze(k, victim, frozen) })
	}
	b.s.Settle(b.t)
}

func (b *breaker) freeze(k kindOf, pod string, d time.Duration) {
	if err := k.SignalPod(b.t.Context(), pod, syscall.SIGSTOP); err != nil {
		b.t.Fatal(err)
	}
	pause(b.t.Context(), d)
	if err := k.SignalPod(context.Background(), pod, syscall.SIGCONT); err != nil {
		b.t.Fatal(err)
	}
}

// during makes a fault of one process, and says what clients may notice of it.
func (b *breaker) during(k kindOf, how, long, victim string, do func()) {
	b.times[how+" of "+k.Name]++
	w := window{fault: fmt.Sprintf("%s%s of the %s %s", how, long, k.Name, victim), began: time.Now()}
	fmt.Fprintf(os.Stderr, "soak: %s %s\n", w.began.Format(clock), w.fault)
	do()
	asked, killed := how == "SIGTERM", how == "SIGKILL"
	grace := frozenGrace
	switch {
	case k.Name == addonManager, k.Name == fleetIndex:
		return // nobody notices: views ask the clusters while the index does not answer
	case k.Name == proxyAgent:
		w.cluster, w.ways = k.cluster, []way{request, stream}
		if asked || killed {
			grace = agentGrace
		}
		if asked {
			ends := w
			ends.ways, ends.ended = []way{stream}, time.Now().Add(askedGrace)
			b.windows = append(b.windows, ends)
		}
	case asked:
		w.ways, grace = []way{stream}, askedGrace
	case killed:
		w.ways, grace = []way{request, stream}, killedGrace
		if k.Name == proxyAPI {
			grace = aggregatedGrace
		}
	default:
		w.ways = []way{request, stream}
	}
	w.ended = time.Now().Add(grace)
	b.windows = append(b.windows, w)
}

// awayFor is how long a cluster has no agents: longer than the index takes rows of a cluster for current.
const awayFor = 45 * time.Second

// takeAway takes the power from the agents of a cluster, and gives it back.
func (b *breaker) takeAway(cluster string) {
	b.times["cluster without agents"]++
	w := window{fault: fmt.Sprintf("no agents of %s for %s", cluster, awayFor), cluster: cluster, ways: []way{request, stream}, began: time.Now()}
	fmt.Fprintf(os.Stderr, "soak: %s %s\n", w.began.Format(clock), w.fault)
	if err := b.s.Lab.PausePods(cluster); err != nil {
		b.t.Fatal(err)
	}
	pause(b.t.Context(), awayFor)
	b.s.StartAgents(b.t, cluster)
	suite.Eventually(b.t, cluster+" reachable again", func() error { return b.s.Reachable(b.t.Context(), cluster) })
	w.ended = time.Now().Add(agentGrace)
	b.windows = append(b.windows, w)
}

// rotate has one of all leaves issued again. Nothing is to be noticed of it.
func (b *breaker) rotate() {
	name, cluster := "", ""
	if n := b.random.IntN(len(suite.HubLeaves) + len(b.s.Clusters)); n < len(suite.HubLeaves) {
		name = suite.HubLeaves[n]
	} else {
		name, cluster = identity.AgentCertificateSecret, b.s.Clusters[n-len(suite.HubLeaves)]
	}
	b.times["new certificate "+name]++
	secrets := b.s.Hub.CoreV1().Secrets(b.s.Namespace)
	if cluster != "" {
		managed, err := kubernetes.NewForConfig(b.s.Direct(cluster))
		if err != nil {
			b.t.Fatal(err)
		}
		secrets = managed.CoreV1().Secrets(b.s.AgentNamespace)
	}
	fmt.Fprintf(os.Stderr, "soak: %s new certificate %s %s\n", time.Now().Format(clock), name, cluster)
	before, err := secrets.Get(b.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	b.windows = append(b.windows, window{fault: strings.TrimSpace("new certificate " + name + " " + cluster), began: time.Now(), ended: time.Now()})
	if err := secrets.Delete(b.t.Context(), name, metav1.DeleteOptions{}); err != nil {
		b.t.Fatal(err)
	}
	suite.Eventually(b.t, "another certificate "+name, func() error {
		now, err := secrets.Get(b.t.Context(), name, metav1.GetOptions{})
		if err == nil && (len(now.Data["tls.crt"]) == 0 || bytes.Equal(now.Data["tls.crt"], before.Data["tls.crt"])) {
			err = fmt.Errorf("there is no other one yet")
		}
		return err
	})
}

// restartAPIServer asks the kube-apiserver of a cluster to end; the lab starts it again.
func (b *breaker) restartAPIServer(cluster string) {
	at, err := url.Parse(b.s.AdminConfig(cluster).Host)
	if err != nil {
		b.t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(at.Host)
	if err != nil {
		b.t.Fatal(err)
	}
	pids := pidsOf(func(process string) bool {
		command, _ := os.ReadFile(filepath.Join(process, "cmdline")) // it may end meanwhile
		return bytes.Contains(command, []byte("--secure-port="+port+"\x00"))
	}, "kube-apiserver")
	if len(pids) != 1 {
		b.t.Fatalf("%d processes are the kube-apiserver of %s", len(pids), cluster)
	}
	b.times["restart of kube-apiserver"]++
	w := window{fault: "restart of the kube-apiserver of " + cluster, cluster: cluster, ways: []way{straight, request, stream}, began: time.Now(), gaps: true}
	fmt.Fprintf(os.Stderr, "soak: %s %s\n", w.began.Format(clock), w.fault)
	if err := syscall.Kill(pids[0], syscall.SIGTERM); err != nil {
		b.t.Fatal(err)
	}
	suite.Eventually(b.t, "the end of a kube-apiserver", func() error {
		if syscall.Kill(pids[0], 0) == nil {
			return fmt.Errorf("process %d is there", pids[0])
		}
		return nil
	})
	suite.Eventually(b.t, "the kube-apiserver of "+cluster, func() error { return suite.Once(b.t.Context(), b.s.Direct(cluster)) })
	// Clients and agents connect again, and its caches fill.
	w.ended = time.Now().Add(agentGrace)
	b.windows = append(b.windows, w)
}
