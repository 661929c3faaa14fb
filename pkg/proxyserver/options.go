package proxyserver

import (
	"fmt"
	"net"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/proxystrategies"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
)

// How an agent's cluster is known.
const (
	// IdentityCertificate takes the cluster from the agent's certificate.
	IdentityCertificate = "certificate"
	// IdentityDeclared believes what agents declare, as konnectivity does.
	IdentityDeclared = "declared"
)

// Options are the flags of the proxy server: konnectivity's, by their names,
// and ours. Start from NewOptions.
type Options struct {
	ServerCert, ServerKey, ServerCACert    string
	ClusterCert, ClusterKey, ClusterCACert string

	Mode          string
	UDSName       string
	DeleteUDSFile bool

	ServerPort, AgentPort, HealthPort, AdminPort                             int
	ServerBindAddress, AgentBindAddress, HealthBindAddress, AdminBindAddress string

	KeepaliveTime, FrontendKeepaliveTime time.Duration
	GracefulShutdownTimeout              time.Duration
	BackendDialTimeout                   time.Duration

	EnableProfiling, EnableContentionProfiling bool

	ServerID    string
	ServerCount int
	// ServerCountFile holds the number instead, and may change.
	ServerCountFile string
	Strategies      string
	XfrChannelSize  int

	TLSMinVersion string
	CipherSuites  []string
	// TLSProfile is a folder with OCM's ConfigMap ocm-tls-profile.
	TLSProfile string

	AgentIdentity         string
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
		Mode:                    server.ModeGRPC,
		DeleteUDSFile:           true,
		ServerPort:              identity.ProxyServerPort,
		AgentPort:               identity.AgentServerPort,
		HealthPort:              8092,
		AdminPort:               8095,
		AdminBindAddress:        "127.0.0.1",
		KeepaliveTime:           30 * time.Second,
		FrontendKeepaliveTime:   30 * time.Second,
		GracefulShutdownTimeout: 30 * time.Second,
		ServerID:                id,
		ServerCount:             1,
		XfrChannelSize:          10,
		AgentIdentity:           IdentityCertificate,
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
	fs.StringVar(&o.Mode, "mode", o.Mode, "what clients speak: grpc or http-connect")
	fs.StringVar(&o.UDSName, "uds-name", o.UDSName, "Unix socket for clients instead of a port; needs --server-port=0")
	fs.BoolVar(&o.DeleteUDSFile, "delete-existing-uds-file", o.DeleteUDSFile, "delete the file of --uds-name before listening on it")
	fs.IntVar(&o.ServerPort, "server-port", o.ServerPort, "port for clients")
	fs.StringVar(&o.ServerBindAddress, "server-bind-address", o.ServerBindAddress, "address for clients; empty means all")
	fs.IntVar(&o.AgentPort, "agent-port", o.AgentPort, "port for agents")
	fs.StringVar(&o.AgentBindAddress, "agent-bind-address", o.AgentBindAddress, "address for agents; empty means all")
	fs.IntVar(&o.HealthPort, "health-port", o.HealthPort, "port for probes and metrics")
	fs.StringVar(&o.HealthBindAddress, "health-bind-address", o.HealthBindAddress, "address for probes and metrics; empty means all")
	fs.IntVar(&o.AdminPort, "admin-port", o.AdminPort, "port for metrics and profiles")
	fs.StringVar(&o.AdminBindAddress, "admin-bind-address", o.AdminBindAddress, "address for metrics and profiles; empty means all")
	fs.DurationVar(&o.KeepaliveTime, "keepalive-time", o.KeepaliveTime, "ping an agent that has been silent for this long")
	fs.DurationVar(&o.FrontendKeepaliveTime, "frontend-keepalive-time", o.FrontendKeepaliveTime, "ping a client that has been silent for this long")
	fs.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout, "how long open connections may go on after --min-drain-duration; 0 cuts them at SIGTERM")
	fs.DurationVar(&o.BackendDialTimeout, "backend-dial-timeout", o.BackendDialTimeout, "how long an agent may take to answer a dial; 0 means no limit")
	fs.BoolVar(&o.EnableProfiling, "enable-profiling", o.EnableProfiling, "serve /debug/pprof on the admin port")
	fs.BoolVar(&o.EnableContentionProfiling, "enable-contention-profiling", o.EnableContentionProfiling, "record blocking for /debug/pprof/block; needs --enable-profiling")
	fs.StringVar(&o.ServerID, "server-id", o.ServerID, "unique ID of this server; the default is $PROXY_SERVER_ID, or else random")
	fs.Lookup("server-id").DefValue = "" // help is the same in each process
	fs.IntVar(&o.ServerCount, "server-count", o.ServerCount, "how many proxy servers agents should connect to")
	fs.StringVar(&o.ServerCountFile, "server-count-file", o.ServerCountFile, "file with that number, in place of --server-count; agents learn of changes")
	fs.StringVar(&o.Strategies, "proxy-strategies", o.Strategies, `comma separated ways to find an agent: default, destHost, defaultRoute; empty means destHost with --agent-identity=certificate, which allows no other, and "default" otherwise`)
	fs.IntVar(&o.XfrChannelSize, "xfr-channel-size", o.XfrChannelSize, "packets buffered per stream")
	fs.StringVar(&o.TLSMinVersion, "tls-min-version", o.TLSMinVersion, "VersionTLS12 or VersionTLS13; empty means the latter")
	fs.StringSliceVar(&o.CipherSuites, "cipher-suites", o.CipherSuites, "cipher suites for TLS 1.2; empty means Go's choice")
	fs.StringVar(&o.TLSProfile, "tls-profile", o.TLSProfile, "folder with OCM's ConfigMap ocm-tls-profile (minTLSVersion, cipherSuites), which may be absent; changes need no restart; --tls-min-version and --cipher-suites go before it")
	fs.StringVar(&o.AgentIdentity, "agent-identity", o.AgentIdentity, "how an agent's cluster is known: certificate (its client certificate names it, and clients need a role) or declared (plain konnectivity: agents are believed, and clients need no role)")
	fs.BoolVar(&o.ClusterMetrics, "cluster-metrics", o.ClusterMetrics, "name the clusters that have an agent here at /metrics; the port asks nobody for a certificate, so agents must not reach it, as they do in PortForward mode")
	fs.BoolVar(&o.WatchManagedClusters, "watch-managed-clusters", o.WatchManagedClusters, "serve agents only while the hub accepts their cluster and has the addon for it, and end their connections within seconds otherwise; needs --agent-identity=certificate, and the right to list and watch managedclusters and managedclusteraddons on the hub")
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
	o.validateRouting(&errs)
	o.validatePeers(&errs)
	flags.AtLeast(&errs, []flags.Check[time.Duration]{
		// gRPC silently raises a keepalive below a second to one second.
		{Flag: "keepalive-time", Value: o.KeepaliveTime, Least: time.Second},
		{Flag: "frontend-keepalive-time", Value: o.FrontendKeepaliveTime, Least: time.Second},
		{Flag: "graceful-shutdown-timeout", Value: o.GracefulShutdownTimeout},
		{Flag: "backend-dial-timeout", Value: o.BackendDialTimeout},
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
	} {
		switch {
		case o.UDSName == "":
			errs.Required(f.flag, f.value, "a PEM file")
		case f.value != "":
			errs.Refuse(f.flag, f.value, "it must be empty with --uds-name, because a Unix socket has no TLS")
		}
	}
	if o.UDSName != "" && o.ServerPort != 0 {
		errs.Refuse("server-port", o.ServerPort, "it must be 0 with --uds-name")
	}
	errs.Required("cluster-cert", o.ClusterCert, "a PEM file")
	errs.Required("cluster-key", o.ClusterKey, "a PEM file")
	errs.Required("cluster-ca-cert", o.ClusterCACert, "a PEM file")
}

func (o *Options) validateRouting(errs *flags.Errors) {
	if o.Mode != server.ModeGRPC && o.Mode != server.ModeHTTPConnect {
		errs.Refuse("mode", o.Mode, "it must be %s or %s", server.ModeGRPC, server.ModeHTTPConnect)
	}
	if o.AgentIdentity != IdentityCertificate && o.AgentIdentity != IdentityDeclared {
		errs.Refuse("agent-identity", o.AgentIdentity, "it must be %s or %s", IdentityCertificate, IdentityDeclared)
	}
	if o.WatchManagedClusters && o.AgentIdentity != IdentityCertificate {
		errs.Refuse("watch-managed-clusters", true, "it must be false without --agent-identity=%s, because declared clusters prove nothing", IdentityCertificate)
	}
	strategies, err := proxystrategies.ParseProxyStrategies(o.strategies())
	errs.Invalid("proxy-strategies", o.Strategies, err)
	if o.AgentIdentity == IdentityCertificate {
		for _, strategy := range strategies {
			if strategy != proxystrategies.ProxyStrategyDestHost {
				errs.Refuse("proxy-strategies", o.Strategies, "it must be %s with --agent-identity=%s, because %s could choose the agent of another cluster",
					proxystrategies.ProxyStrategyDestHost, IdentityCertificate, strategy)
			}
		}
	}
	errs.Required("server-id", o.ServerID, "a name")
	flags.AtLeast(errs, flags.Check[int]{Flag: "server-count", Value: o.ServerCount, Least: 1}, flags.Check[int]{Flag: "xfr-channel-size", Value: o.XfrChannelSize, Least: 1})
}

func (o *Options) validatePeers(errs *flags.Errors) {
	for _, peer := range o.Peers {
		if host, port, err := net.SplitHostPort(peer); err != nil || host == "" || port == "" {
			errs.Refuse("peers", peer, "it must be of the form host:port")
		}
	}
	if len(o.Peers) > 0 && o.UDSName != "" {
		errs.Refuse("peers", o.Peers, "it must be empty with --uds-name, because peers reach each other by TLS")
	}
}

func (o *Options) hubConfig() (*rest.Config, error) {
	config, err := flags.RESTConfig("kubeconfig", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("--watch-managed-clusters: %w", err)
	}
	return config, nil
}

func (o *Options) strategies() string {
	switch {
	case o.Strategies != "":
		return o.Strategies
	case o.AgentIdentity == IdentityCertificate:
		return proxystrategies.ProxyStrategyDestHost.String()
	default:
		return proxystrategies.ProxyStrategyDefault.String()
	}
}
