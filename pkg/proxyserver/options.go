package proxyserver

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/filewatch"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// Options are the flags of the proxy server: konnectivity's, by their names,
// and ours. Start from NewOptions.
type Options struct {
	ServerCert, ServerKey, ServerCACert    string
	ClusterCert, ClusterKey, ClusterCACert string

	ServerPort, AgentPort, HealthPort, AdminPort                             int
	ServerBindAddress, AgentBindAddress, HealthBindAddress, AdminBindAddress string

	KeepaliveTime           time.Duration
	GracefulShutdownTimeout time.Duration

	EnableProfiling, EnableContentionProfiling bool

	ServerID    string
	ServerCount int
	// ServerCountFile holds the number instead, and may change.
	ServerCountFile string

	// KonnectivityAgents has konnectivity's own agents served; see package konnectivity.
	KonnectivityAgents bool

	TLSMinVersion string
	CipherSuites  []string
	// TLSProfile is a folder with OCM's ConfigMap ocm-tls-profile.
	TLSProfile string

	AgentInstallNamespace string

	// WatchManagedClusters refuses and ends agents of clusters that the hub does not
	// accept, or that have no addon.
	WatchManagedClusters bool
	// ClusterMetrics has the metrics name the clusters that have an agent here.
	ClusterMetrics bool
	// Kubeconfig of the hub, for that; empty means $KUBECONFIG, then the pod's service account.
	Kubeconfig string

	// Peers are host:port addresses of the client ports of the other proxy
	// servers. A host may stand for several, and for this server too.
	Peers []string
	// PeerServerName is the name in the peers' certificates; empty means the
	// host of each.
	PeerServerName string

	Limits
}

// NewOptions returns the defaults. They are konnectivity's, except for the
// keepalive times (1 h there: a dead tunnel went unnoticed for that long), TLS
// 1.3 and a drain of 30 s.
func NewOptions() *Options {
	id := os.Getenv("PROXY_SERVER_ID")
	if id == "" {
		id = uuid.NewString()
	}
	return &Options{
		ServerPort:              identity.ProxyServerPort,
		AgentPort:               identity.AgentServerPort,
		HealthPort:              8092,
		AdminPort:               8095,
		AdminBindAddress:        "127.0.0.1",
		KeepaliveTime:           30 * time.Second,
		GracefulShutdownTimeout: 30 * time.Second,
		ServerID:                id,
		ServerCount:             1,
		AgentInstallNamespace:   identity.DefaultAgentNamespace,
		Limits:                  newLimits(),
	}
}

// AddFlags binds the options to flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	o.Limits.addFlags(fs)
	fs.StringVar(&o.ServerCert, "server-cert", o.ServerCert, "serving certificate of the client port")
	fs.StringVar(&o.ServerKey, "server-key", o.ServerKey, "key of --server-cert")
	fs.StringVar(&o.ServerCACert, "server-ca-cert", o.ServerCACert, "CA bundle that client certificates are verified with")
	fs.StringVar(&o.ClusterCert, "cluster-cert", o.ClusterCert, "serving certificate of the agent port")
	fs.StringVar(&o.ClusterKey, "cluster-key", o.ClusterKey, "key of --cluster-cert")
	fs.StringVar(&o.ClusterCACert, "cluster-ca-cert", o.ClusterCACert, "CA bundle that agent certificates are verified with")
	fs.IntVar(&o.ServerPort, "server-port", o.ServerPort, "port for clients")
	fs.StringVar(&o.ServerBindAddress, "server-bind-address", o.ServerBindAddress, "address for clients; empty means all")
	fs.IntVar(&o.AgentPort, "agent-port", o.AgentPort, "port for agents")
	fs.StringVar(&o.AgentBindAddress, "agent-bind-address", o.AgentBindAddress, "address for agents; empty means all")
	fs.IntVar(&o.HealthPort, "health-port", o.HealthPort, "port for probes and metrics")
	fs.StringVar(&o.HealthBindAddress, "health-bind-address", o.HealthBindAddress, "address for probes and metrics; empty means all")
	fs.IntVar(&o.AdminPort, "admin-port", o.AdminPort, "port for metrics and profiles")
	fs.StringVar(&o.AdminBindAddress, "admin-bind-address", o.AdminBindAddress, "address for metrics and profiles; empty means all")
	fs.DurationVar(&o.KeepaliveTime, "keepalive-time", o.KeepaliveTime, "ping an agent or client that has been silent for this long")
	fs.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout, "how long open connections may go on after --min-drain-duration; 0 cuts them at SIGTERM")
	fs.BoolVar(&o.EnableProfiling, "enable-profiling", o.EnableProfiling, "serve /debug/pprof on the admin port")
	fs.BoolVar(&o.EnableContentionProfiling, "enable-contention-profiling", o.EnableContentionProfiling, "record blocking for /debug/pprof/block; needs --enable-profiling")
	fs.StringVar(&o.ServerID, "server-id", o.ServerID, "unique ID of this server; the default is $PROXY_SERVER_ID, or else random")
	fs.Lookup("server-id").DefValue = "" // help is the same in each process
	fs.IntVar(&o.ServerCount, "server-count", o.ServerCount, "how many proxy servers agents should connect to")
	fs.StringVar(&o.ServerCountFile, "server-count-file", o.ServerCountFile, "file with that number, in place of --server-count; agents learn of changes")
	fs.StringVar(&o.TLSMinVersion, "tls-min-version", o.TLSMinVersion, "VersionTLS12 or VersionTLS13; empty means the latter")
	fs.StringSliceVar(&o.CipherSuites, "cipher-suites", o.CipherSuites, "cipher suites for TLS 1.2; empty means Go's choice")
	fs.StringVar(&o.TLSProfile, "tls-profile", o.TLSProfile, "folder with OCM's ConfigMap ocm-tls-profile (minTLSVersion, cipherSuites), which may be absent; changes need no restart; --tls-min-version and --cipher-suites go before it")
	fs.BoolVar(&o.ClusterMetrics, "cluster-metrics", o.ClusterMetrics, "name the clusters that have an agent here at /metrics; the port asks nobody for a certificate, so agents must not reach it, as they do in PortForward mode")
	fs.BoolVar(&o.WatchManagedClusters, "watch-managed-clusters", o.WatchManagedClusters, "serve agents only while the hub accepts their cluster and has the addon for it, and end their connections within seconds otherwise; needs the right to list and watch managedclusters and managedclusteraddons on the hub")
	fs.BoolVar(&o.KonnectivityAgents, "konnectivity-agents", o.KonnectivityAgents, "stand in for a konnectivity server: serve konnectivity's own agents too, whose certificate must name their cluster as every agent's does, serve HTTP CONNECT beside gRPC on --server-port, and be ready only while an agent is connected")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the hub, for --watch-managed-clusters; empty means $KUBECONFIG, then the pod's service account")
	fs.StringSliceVar(&o.Peers, "peers", o.Peers, "host:port of the client ports of other proxy servers, which are asked for clusters whose agents are not here; all addresses of a host count, so a headless Service is enough; this server shows them --server-cert, which needs the peer's role")
	fs.StringVar(&o.PeerServerName, "peer-server-name", o.PeerServerName, "name in the certificates of --peers; empty means the host of each")
	fs.StringVar(&o.AgentInstallNamespace, "agent-install-namespace", o.AgentInstallNamespace, "namespace of agents on managed clusters; <cluster>.<namespace> is a name of the cluster")
}

// Validate reports all flags that are wrong, and what is allowed. It does no I/O.
func (o *Options) Validate() error {
	var errs flags.Errors
	o.validateFiles(&errs)
	errs.Port("server-port", o.ServerPort)
	errs.Port("agent-port", o.AgentPort)
	errs.Port("health-port", o.HealthPort)
	errs.Port("admin-port", o.AdminPort)
	errs.Required("server-id", o.ServerID, "a name")
	flags.AtLeast(&errs, flags.Check[int]{Flag: "server-count", Value: o.ServerCount, Least: 1})
	o.validatePeers(&errs)
	flags.AtLeast(&errs, []flags.Check[time.Duration]{
		// gRPC silently raises a keepalive below a second to one second.
		{Flag: "keepalive-time", Value: o.KeepaliveTime, Least: time.Second},
		{Flag: "graceful-shutdown-timeout", Value: o.GracefulShutdownTimeout},
	}...)
	o.Limits.validate(&errs)
	if _, err := pki.ParseTLSParameters(o.TLSMinVersion, o.CipherSuites); err != nil {
		errs.Add(fmt.Errorf("--tls-min-version and --cipher-suites: %w", err))
	}
	if o.EnableContentionProfiling && !o.EnableProfiling {
		errs.Refuse("enable-contention-profiling", true, "it must be false without --enable-profiling")
	}
	return errs.Err()
}

func (o *Options) validateFiles(errs *flags.Errors) {
	for _, f := range []struct{ flag, value string }{
		{"server-cert", o.ServerCert}, {"server-key", o.ServerKey}, {"server-ca-cert", o.ServerCACert},
		{"cluster-cert", o.ClusterCert}, {"cluster-key", o.ClusterKey}, {"cluster-ca-cert", o.ClusterCACert},
	} {
		errs.Required(f.flag, f.value, "a PEM file")
	}
}

func (o *Options) validatePeers(errs *flags.Errors) {
	for _, peer := range o.Peers {
		if host, port, err := net.SplitHostPort(peer); err != nil || host == "" || port == "" {
			errs.Refuse("peers", peer, "it must be of the form host:port")
		}
	}
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func (o *Options) hubConfig() (*rest.Config, error) {
	config, err := flags.RESTConfig("kubeconfig", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--watch-managed-clusters: %w", err)
	}
	return config, nil
}

// Limits are the sizes and times of carriers. Start from NewOptions.
type Limits struct {
	// IdleCarriers are kept ready for each agent, its control session among them, and one
	// more to each peer. One that was idle for
	// CarrierIdleTime and is above that number is closed.
	IdleCarriers    int
	CarrierIdleTime time.Duration
	// MaxCarriers bounds the carriers of one agent and of all agents of a cluster,
	// MaxPendingDials the dials that they have not answered.
	MaxCarriers, MaxPendingDials int
	// DialTimeout bounds a dial from end to end; a client may ask for less.
	DialTimeout time.Duration
	// HandshakeTimeout bounds a TLS handshake, and HELLO after it.
	HandshakeTimeout time.Duration
	// MaxHandshakes bounds the TLS handshakes that are worked on at a time.
	MaxHandshakes int
	// TCPKeepAlive and TCPUserTimeout are those of dial.TCP.
	TCPKeepAlive, TCPUserTimeout time.Duration
	// MinDrainDuration is how long the server goes on serving new dials after
	// SIGTERM, and after the last connection of a client since then, while it is not
	// ready, so that clients and agents notice. Three times that is the most.
	MinDrainDuration time.Duration
}

func newLimits() Limits {
	return Limits{
		IdleCarriers:     1,
		CarrierIdleTime:  time.Minute,
		MaxCarriers:      4096,
		MaxPendingDials:  1024,
		DialTimeout:      15 * time.Second,
		HandshakeTimeout: 10 * time.Second,
		MaxHandshakes:    2 * runtime.GOMAXPROCS(0),
		TCPKeepAlive:     30 * time.Second,
		TCPUserTimeout:   30 * time.Second,
		MinDrainDuration: 5 * time.Second,
	}
}

func (l *Limits) addFlags(fs *pflag.FlagSet) {
	fs.IntVar(&l.IdleCarriers, "idle-carriers", l.IdleCarriers, "carriers kept ready for each agent, its control session among them, and one more to each peer; more are dialed as they are used")
	fs.DurationVar(&l.CarrierIdleTime, "carrier-idle-time", l.CarrierIdleTime, "close carriers above --idle-carriers that were idle for this long")
	fs.IntVar(&l.MaxCarriers, "max-carriers", l.MaxCarriers, "most carriers of the agents of one cluster, and so most connections; further dials are refused")
	fs.IntVar(&l.MaxPendingDials, "max-pending-dials", l.MaxPendingDials, "most dials that the agents of one cluster have not answered; further ones are refused")
	fs.DurationVar(&l.DialTimeout, "dial-timeout", l.DialTimeout, "how long a dial may take from end to end")
	fs.DurationVar(&l.HandshakeTimeout, "handshake-timeout", l.HandshakeTimeout, "how long a TLS handshake may take")
	fs.IntVar(&l.MaxHandshakes, "max-handshakes", l.MaxHandshakes, "most TLS handshakes worked on at a time, on each port; the default is two for each processor")
	fs.Lookup("max-handshakes").DefValue = "0" // help is the same on each machine
	fs.DurationVar(&l.TCPKeepAlive, "tcp-keepalive", l.TCPKeepAlive, "probe a connection that has been silent for this long")
	fs.DurationVar(&l.TCPUserTimeout, "tcp-user-timeout", l.TCPUserTimeout, "close a connection when sent bytes stay unacknowledged for this long")
	fs.DurationVar(&l.MinDrainDuration, "min-drain-duration", l.MinDrainDuration, "how long new dials are still served after SIGTERM and after the last connection since then, three times as long at most, while clients and agents learn that they should go elsewhere; agents that have no other server make it up to a minute more; --graceful-shutdown-timeout=0 skips it")
}

func (l *Limits) validate(errs *flags.Errors) {
	flags.AtLeast(errs, []flags.Check[int]{
		{Flag: "idle-carriers", Value: l.IdleCarriers, Least: 1}, {Flag: "max-carriers", Value: l.MaxCarriers, Least: max(l.IdleCarriers, 1)},
		{Flag: "max-pending-dials", Value: l.MaxPendingDials, Least: 1}, {Flag: "max-handshakes", Value: l.MaxHandshakes, Least: 1},
	}...)
	flags.AtLeast(errs, []flags.Check[time.Duration]{
		{Flag: "carrier-idle-time", Value: l.CarrierIdleTime, Least: time.Second},
		{Flag: "dial-timeout", Value: l.DialTimeout, Least: time.Millisecond},
		{Flag: "handshake-timeout", Value: l.HandshakeTimeout, Least: time.Millisecond},
		{Flag: "tcp-keepalive", Value: l.TCPKeepAlive, Least: time.Second},
		{Flag: "tcp-user-timeout", Value: l.TCPUserTimeout, Least: time.Second},
		{Flag: "min-drain-duration", Value: l.MinDrainDuration},
	}...)
}

// countPoll is how often the file of --server-count-file is read.
const countPoll = 2 * time.Second

// serverCount is how many proxy servers agents should connect to. From a file it may
// change while the server runs: with an argument alone, one more server would mean to
// replace all servers.
type serverCount struct {
	file string // empty if it never changes
	n    atomic.Int64
}

func (c *serverCount) get() int { return int(c.n.Load()) }

// load reads the file and reports whether the number has changed.
func (c *serverCount) load() (changed bool, err error) {
	if c.file == "" {
		return false, nil
	}
	content, err := os.ReadFile(c.file)
	if err != nil {
		return false, fmt.Errorf("reading how many proxy servers there are: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || n < 1 {
		return false, fmt.Errorf("reading how many proxy servers there are: %q in %q is not a number of at least 1", content, c.file)
	}
	return c.n.Swap(int64(n)) != int64(n), nil
}

// run tells agents of every change until ctx is done. A file that cannot be read
// changes nothing.
func (c *serverCount) run(ctx context.Context, changed func(n int)) error {
	logger := klog.FromContext(ctx)
	return filewatch.Loop{
		Interval: countPoll,
		Load:     c.load,
		Changed: func() {
			logger.Info("The number of proxy servers changed", "servers", c.get())
			changed(c.get())
		},
		Failed: func(err error) { logger.Error(err, "Keeping the number that is known", "servers", c.get()) },
	}.Run(ctx)
}
