package proxyserver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server"
	"sigs.k8s.io/apiserver-network-proxy/pkg/server/proxystrategies"

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
	// Kubeconfig of the hub, for that; empty means $KUBECONFIG, then in-cluster.
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
		ServerPort:              8090,
		AgentPort:               8091,
		HealthPort:              8092,
		AdminPort:               8095,
		AdminBindAddress:        "127.0.0.1",
		KeepaliveTime:           30 * time.Second,
		FrontendKeepaliveTime:   30 * time.Second,
		GracefulShutdownTimeout: 30 * time.Second,
		ServerID:                id,
		ServerCount:             1,
		XfrChannelSize:          10,
		AgentIdentity:           IdentityDeclared,
		AgentInstallNamespace:   identity.DefaultAgentNamespace,
		Limits:                  newLimits(),
	}
}

// AddFlags binds the options to flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	o.Limits.addFlags(flags)
	flags.StringVar(&o.ServerCert, "server-cert", o.ServerCert, "Serving certificate of the client port.")
	flags.StringVar(&o.ServerKey, "server-key", o.ServerKey, "Key of --server-cert.")
	flags.StringVar(&o.ServerCACert, "server-ca-cert", o.ServerCACert, "CA bundle that client certificates are verified with.")
	flags.StringVar(&o.ClusterCert, "cluster-cert", o.ClusterCert, "Serving certificate of the agent port.")
	flags.StringVar(&o.ClusterKey, "cluster-key", o.ClusterKey, "Key of --cluster-cert.")
	flags.StringVar(&o.ClusterCACert, "cluster-ca-cert", o.ClusterCACert, "CA bundle that agent certificates are verified with.")
	flags.StringVar(&o.Mode, "mode", o.Mode, "What clients speak: grpc or http-connect.")
	flags.StringVar(&o.UDSName, "uds-name", o.UDSName, "Unix socket for clients instead of a port; needs --server-port=0.")
	flags.BoolVar(&o.DeleteUDSFile, "delete-existing-uds-file", o.DeleteUDSFile, "Delete the file of --uds-name before listening on it.")
	flags.IntVar(&o.ServerPort, "server-port", o.ServerPort, "Port for clients.")
	flags.StringVar(&o.ServerBindAddress, "server-bind-address", o.ServerBindAddress, "Address for clients; empty means all.")
	flags.IntVar(&o.AgentPort, "agent-port", o.AgentPort, "Port for agents.")
	flags.StringVar(&o.AgentBindAddress, "agent-bind-address", o.AgentBindAddress, "Address for agents; empty means all.")
	flags.IntVar(&o.HealthPort, "health-port", o.HealthPort, "Port for probes and metrics.")
	flags.StringVar(&o.HealthBindAddress, "health-bind-address", o.HealthBindAddress, "Address for probes and metrics; empty means all.")
	flags.IntVar(&o.AdminPort, "admin-port", o.AdminPort, "Port for metrics and profiles.")
	flags.StringVar(&o.AdminBindAddress, "admin-bind-address", o.AdminBindAddress, "Address for metrics and profiles; empty means all.")
	flags.DurationVar(&o.KeepaliveTime, "keepalive-time", o.KeepaliveTime, "Ping an agent that has been silent for this long.")
	flags.DurationVar(&o.FrontendKeepaliveTime, "frontend-keepalive-time", o.FrontendKeepaliveTime, "Ping a client that has been silent for this long.")
	flags.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout, "How long connections may go on after SIGTERM; 0 cuts them at once.")
	flags.DurationVar(&o.BackendDialTimeout, "backend-dial-timeout", o.BackendDialTimeout, "How long an agent may take to answer a dial; 0 means no limit.")
	flags.BoolVar(&o.EnableProfiling, "enable-profiling", o.EnableProfiling, "Serve /debug/pprof on the admin port.")
	flags.BoolVar(&o.EnableContentionProfiling, "enable-contention-profiling", o.EnableContentionProfiling, "Record blocking for /debug/pprof/block; needs --enable-profiling.")
	flags.StringVar(&o.ServerID, "server-id", o.ServerID, "Unique ID of this server; the environment variable PROXY_SERVER_ID sets the default.")
	flags.IntVar(&o.ServerCount, "server-count", o.ServerCount, "How many proxy servers agents should connect to.")
	flags.StringVar(&o.ServerCountFile, "server-count-file", o.ServerCountFile, "File with that number, in place of --server-count; agents are told of changes.")
	flags.StringVar(&o.Strategies, "proxy-strategies", o.Strategies, `Comma separated ways to find an agent: default, destHost, defaultRoute. Empty means destHost with --agent-identity=certificate, which allows no other, and "default" otherwise.`)
	flags.IntVar(&o.XfrChannelSize, "xfr-channel-size", o.XfrChannelSize, "Packets buffered per stream.")
	flags.StringVar(&o.TLSMinVersion, "tls-min-version", o.TLSMinVersion, "VersionTLS12 or VersionTLS13; empty means the latter.")
	flags.StringSliceVar(&o.CipherSuites, "cipher-suites", o.CipherSuites, "Cipher suites for TLS 1.2; empty means Go's choice.")
	flags.StringVar(&o.TLSProfile, "tls-profile", o.TLSProfile, "Folder with OCM's ConfigMap ocm-tls-profile (minTLSVersion, cipherSuites), which may be absent; changes need no restart. The two flags above go before it.")
	flags.StringVar(&o.AgentIdentity, "agent-identity", o.AgentIdentity, "How an agent's cluster is known: certificate (its client certificate names it, and clients need a role) or declared (plain konnectivity).")
	flags.BoolVar(&o.WatchManagedClusters, "watch-managed-clusters", o.WatchManagedClusters, "Serve agents only while the hub accepts their cluster and has the addon for it, and end their connections within seconds otherwise. Needs --agent-identity=certificate, and the right to list and watch managedclusters and managedclusteraddons on the hub.")
	flags.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "Kubeconfig of the hub for --watch-managed-clusters; empty means $KUBECONFIG, then in-cluster.")
	flags.StringSliceVar(&o.Peers, "peers", o.Peers, "host:port of the client ports of other proxy servers, which are asked for clusters whose agents are not here; all addresses of a host count, so a headless Service is enough. This server shows them --server-cert, which needs the peer's role.")
	flags.StringVar(&o.PeerServerName, "peer-server-name", o.PeerServerName, "Name in the certificates of --peers; empty means the host of each.")
	flags.StringVar(&o.AgentInstallNamespace, "agent-install-namespace", o.AgentInstallNamespace, "Namespace of agents on managed clusters; <cluster>.<namespace> is a name of the cluster.")
}

// Validate reports the first flag that cannot be used. It does no I/O.
func (o *Options) Validate() error {
	checks := []func() error{o.validateFiles, o.validatePorts, o.validateRouting, o.validatePeers, o.validateTimes, o.Limits.validate}
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	if _, err := pki.ParseTLSParameters(o.TLSMinVersion, o.CipherSuites); err != nil {
		return fmt.Errorf("--tls-min-version and --cipher-suites: %w", err)
	}
	if o.EnableContentionProfiling && !o.EnableProfiling {
		return errors.New("--enable-contention-profiling needs --enable-profiling")
	}
	return nil
}

func (o *Options) validateFiles() error {
	required := []struct{ flag, value string }{
		{"--cluster-cert", o.ClusterCert}, {"--cluster-key", o.ClusterKey}, {"--cluster-ca-cert", o.ClusterCACert},
	}
	client := []struct{ flag, value string }{
		{"--server-cert", o.ServerCert}, {"--server-key", o.ServerKey}, {"--server-ca-cert", o.ServerCACert},
	}
	if o.UDSName == "" {
		required = append(required, client...)
	} else {
		for _, f := range client {
			if f.value != "" {
				return fmt.Errorf("%s must be empty with --uds-name, a Unix socket has no TLS", f.flag)
			}
		}
		if o.ServerPort != 0 {
			return fmt.Errorf("--server-port must be 0 with --uds-name, not %d", o.ServerPort)
		}
	}
	for _, f := range required {
		if f.value == "" {
			return fmt.Errorf("%s is required", f.flag)
		}
	}
	return nil
}

func (o *Options) validatePorts() error {
	for _, p := range []struct {
		flag string
		port int
	}{
		{"--server-port", o.ServerPort}, {"--agent-port", o.AgentPort},
		{"--health-port", o.HealthPort}, {"--admin-port", o.AdminPort},
	} {
		if p.port < 0 || p.port > 65535 {
			return fmt.Errorf("%s must be 0 (a free one) to 65535, not %d", p.flag, p.port)
		}
	}
	return nil
}

func (o *Options) validateRouting() error {
	if o.Mode != server.ModeGRPC && o.Mode != server.ModeHTTPConnect {
		return fmt.Errorf("--mode must be %s or %s, not %q", server.ModeGRPC, server.ModeHTTPConnect, o.Mode)
	}
	if o.AgentIdentity != IdentityCertificate && o.AgentIdentity != IdentityDeclared {
		return fmt.Errorf("--agent-identity must be %s or %s, not %q", IdentityCertificate, IdentityDeclared, o.AgentIdentity)
	}
	if o.WatchManagedClusters && o.AgentIdentity != IdentityCertificate {
		return fmt.Errorf("--watch-managed-clusters needs --agent-identity=%s, because declared clusters prove nothing", IdentityCertificate)
	}
	strategies, err := proxystrategies.ParseProxyStrategies(o.strategies())
	if err != nil {
		return fmt.Errorf("--proxy-strategies %q: %w", o.Strategies, err)
	}
	if o.AgentIdentity == IdentityCertificate {
		for _, strategy := range strategies {
			if strategy != proxystrategies.ProxyStrategyDestHost {
				return fmt.Errorf("--proxy-strategies must be %s with --agent-identity=%s, %s could choose the agent of another cluster",
					proxystrategies.ProxyStrategyDestHost, IdentityCertificate, strategy)
			}
		}
	}
	if o.ServerID == "" {
		return errors.New("--server-id must not be empty")
	}
	if o.ServerCount < 1 {
		return fmt.Errorf("--server-count must be at least 1, not %d", o.ServerCount)
	}
	if o.XfrChannelSize < 1 {
		return fmt.Errorf("--xfr-channel-size must be at least 1, not %d", o.XfrChannelSize)
	}
	return nil
}

func (o *Options) validatePeers() error {
	for _, peer := range o.Peers {
		if host, port, err := net.SplitHostPort(peer); err != nil || host == "" || port == "" {
			return fmt.Errorf("--peers must be host:port, not %q", peer)
		}
	}
	if len(o.Peers) > 0 && o.UDSName != "" {
		return errors.New("--peers must be empty with --uds-name, peers reach each other by TLS")
	}
	return nil
}

func (o *Options) validateTimes() error {
	return atLeast([]bound{
		// gRPC raises a keepalive below a second to one without a word.
		{"--keepalive-time", o.KeepaliveTime, time.Second},
		{"--frontend-keepalive-time", o.FrontendKeepaliveTime, time.Second},
		{"--graceful-shutdown-timeout", o.GracefulShutdownTimeout, 0},
		{"--backend-dial-timeout", o.BackendDialTimeout, 0},
	})
}

func (o *Options) hubConfig() (*rest.Config, error) {
	path := o.Kubeconfig
	if path == "" {
		path = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("loading the hub's kubeconfig %q (--watch-managed-clusters needs one, or a service account): %w", path, err)
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
