package agents

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent"
	"open-cluster-management.io/cluster-proxy/pkg/proxyserver"
)

// profilesEnv is a folder for profiles of what BenchmarkIdleAgents measures.
const profilesEnv = "CLUSTER_PROXY_AGENTS_PROFILES"

// idleTime is how long processor time is counted.
const idleTime = 20 * time.Second

// idleServers is how many proxy servers they have.
const idleServers = 2

// BenchmarkIdleAgents says what a cluster's agent costs while nobody uses it: memory and
// goroutines at the agent, at one proxy server, and memory at both as test/scale counts it,
// which is a proxy server's share and the agent's divided by the proxy servers. Heap and stacks
// are counted after a collection; what an operating system says is more. The agents share a
// process, as in test/scale, but their kube-apiserver has one of its own.
func BenchmarkIdleAgents(b *testing.B) {
	agents := 500 / scale
	needFiles(b, uint64(10*agents*idleServers+1000))
	h := newHub(b, idleServers)
	spec := childSpec{Dir: h.dir, Kubeconfig: filepath.Join(h.dir, "kubeconfig")}
	around := spec
	for range idleServers {
		s := h.startServer(func(o *proxyserver.Options) {
			o.ServerCount = idleServers
		})
		around.Backends = append(around.Backends, s.Addrs().Agent.String())
	}
	spec.Port = h.startChildOf(around).report().Port
	bare := h.startChildOf(spec).report().Usage
	for i := range agents {
		spec.Clusters = append(spec.Clusters, fmt.Sprint("cluster-", i))
	}
	before := mustMeasure(b)
	c := h.startChildOf(spec)
	// An agent in a hundred finds its second server minutes later, and is left out.
	eventually(b, "agents have their carriers to all servers", seldom(func() bool {
		return !slices.ContainsFunc(h.servers, func(s *server) bool {
			connected := s.metric(b, "cluster_proxy_server_agents", `speaks="carriers"`)
			idle := s.metric(b, "cluster_proxy_server_carriers", `side="agents",state="idle"`)
			return connected < 0.98*float64(agents) || idle != connected
		})
	}))
	agent, server := c.report().Usage, mustMeasure(b)
	b.ResetTimer()
	<-time.NewTimer(idleTime).C
	agentLater, serverLater := c.report().Usage, mustMeasure(b)
	if folder := os.Getenv(profilesEnv); folder != "" {
		c.profile(filepath.Join(folder, "agents-"))
		if err := writeProfiles(filepath.Join(folder, "servers-")); err != nil {
			b.Fatal(err)
		}
	}
	reportIdle(b, agents, [2]usage{bare, agent}, [2]usage{before, server})
	milliseconds := func(later, then usage) float64 {
		return float64((later.Processor - then.Processor).Microseconds()) / 1000 / float64(agents) / idleTime.Seconds()
	}
	idle, connected := 0.0, 0.0
	for _, s := range h.servers {
		connected += s.metric(b, "cluster_proxy_server_agents", `speaks="carriers"`)
		idle += s.metric(b, "cluster_proxy_server_carriers", `side="agents",state="idle"`)
	}
	b.ReportMetric(idle/connected, "carriers")
	b.ReportMetric(milliseconds(agentLater, agent), "agent-cpu-ms/s")
	b.ReportMetric(milliseconds(serverLater, server)/idleServers, "server-cpu-ms/s")
}

func reportIdle(b *testing.B, agents int, agent, server [2]usage) {
	each := func(of [2]usage, n int, what func(usage) int) float64 {
		return float64(what(of[1])-what(of[0])) / float64(agents) / float64(n)
	}
	memory := func(u usage) int { return u.Memory }
	stacks := func(u usage) int { return u.Stacks }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(each(agent, 1, memory)/1024, "agent-KiB")
	b.ReportMetric(each(agent, 1, stacks)/1024, "agent-stack-KiB")
	b.ReportMetric(each(agent, 1, func(u usage) int { return u.Live })/1024, "agent-live-KiB")
	b.ReportMetric(each(server, idleServers, func(u usage) int { return u.Live })/1024, "server-live-KiB")
	b.ReportMetric(each(agent, 1, func(u usage) int { return u.Goroutines }), "agent-goroutines")
	b.ReportMetric(each(server, idleServers, memory)/1024, "server-KiB")
	b.ReportMetric(each(server, idleServers, stacks)/1024, "server-stack-KiB")
	b.ReportMetric(each(server, idleServers, func(u usage) int { return u.Goroutines }), "server-goroutines")
	b.ReportMetric((each(agent, idleServers, memory)+each(server, idleServers, memory))/1024, "both-KiB")
}

func mustMeasure(tb testing.TB) usage {
	tb.Helper()
	u, err := measure()
	if err != nil {
		tb.Fatal(err)
	}
	return u
}

func writeProfiles(prefix string) error {
	for _, name := range []string{"heap", "goroutine"} {
		file, err := os.Create(prefix + name + ".pb.gz")
		if err != nil {
			return err
		}
		defer file.Close()
		if err := pprof.Lookup(name).WriteTo(file, 0); err != nil {
			return err
		}
	}
	return nil
}

// clusterOptions makes an agent of a cluster, with a handler and a Lease, out of a plain one.
func clusterOptions(o *proxyagent.Options, cluster, kubeconfig string) {
	o.ClusterName, o.AddonLeaseNamespace = cluster, o.AgentInstallNamespace
	o.HandlerPort = 0
	o.Kubeconfig = kubeconfig
	o.AgentIdentifiers = identity.Identifiers(identity.Hosts(cluster, o.AgentInstallNamespace))
}

// surroundings are what the agents of clusters need besides proxy servers.
type surroundings struct {
	api      *httptest.Server
	balancer *balancer
	port     int // of the balancer
}

// serveAround starts a kube-apiserver that has the addon's Lease and nothing else, and a
// balancer. It writes how to reach the former to kubeconfig.
func serveAround(backends []string, kubeconfig string) (*surroundings, error) {
	balancer, err := listenBalancer()
	if err != nil {
		return nil, err
	}
	for _, backend := range backends {
		balancer.add(backend)
	}
	s := &surroundings{balancer: balancer, port: balancer.listener.Addr().(*net.TCPAddr).Port}
	s.api = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Lease","apiVersion":"coordination.k8s.io/v1","metadata":{"name":"cluster-proxy"}}`)
	}))
	s.api.EnableHTTP2 = true
	s.api.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.api.StartTLS()
	config := clientcmdapi.NewConfig()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.api.Certificate().Raw})
	config.Clusters["it"] = &clientcmdapi.Cluster{Server: s.api.URL, CertificateAuthorityData: ca}
	config.AuthInfos["it"] = &clientcmdapi.AuthInfo{Token: "token"}
	config.Contexts["it"] = &clientcmdapi.Context{Cluster: "it", AuthInfo: "it"}
	config.CurrentContext = "it"
	return s, clientcmd.WriteToFile(*config, kubeconfig)
}

func (s *surroundings) close() {
	s.api.Close()
	s.balancer.close()
}
