package proxyagent

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/pflag"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/oidc"
)

// Options are the flags of the agent. Use NewOptions.
type Options struct {
	// ProxyServerHost and ProxyServerPort are the address of the proxy servers.
	ProxyServerHost string
	ProxyServerPort int
	// AgentCert, AgentKey and CACert are PEM files: what the agent shows proxy servers, and
	// the CAs of theirs.
	AgentCert, AgentKey, CACert string
	// AgentID is this process's, and no other's. AgentIdentifiers are the destinations that
	// lead to it, in konnectivity's URL encoding.
	AgentID, AgentIdentifiers string
	// Kubeconfig is that of the managed cluster.
	Kubeconfig string
	// SyncInterval and SyncIntervalCap are the first and the last limit of the random pauses
	// between attempts to connect.
	SyncInterval, SyncIntervalCap time.Duration
	// KeepaliveTime is how long a proxy server is silent before it is pinged.
	KeepaliveTime time.Duration
	// HealthServerHost and HealthServerPort are where probes and metrics are served.
	HealthServerHost string
	HealthServerPort int
	// AdminBindAddress and AdminServerPort are where profiles are served, if they are enabled.
	AdminBindAddress                           string
	AdminServerPort                            int
	EnableProfiling, EnableContentionProfiling bool

	// ClusterName is this cluster's name on the hub. Empty makes a plain agent, which dials
	// whatever it is asked for.
	ClusterName string
	// PodName is that of the agent's pod, for its metrics; empty names none.
	PodName string
	// AgentInstallNamespace is where the agent runs; it is part of one of the
	// kube-apiserver's names in the tunnel.
	AgentInstallNamespace string
	// HandlerBindAddress and HandlerPort are where the handler listens.
	HandlerBindAddress string
	HandlerPort        int
	// ExposedServices is a folder with the list of Services that requests may
	// go to (package agentapi). Empty means none.
	ExposedServices string
	// AdditionalServiceCA is a bundle of CAs of Services, besides the cluster's
	// own CA. It may be absent.
	AdditionalServiceCA string
	// DNSServer, host:port, resolves Services in the place of the pod's own.
	DNSServer string
	// TLSProfile is a folder with OCM's ConfigMap ocm-tls-profile.
	TLSProfile string
	// OwnerPolicy is a folder with what the cluster's owner says about requests
	// of the hub (package ownerpolicy). Empty is an owner who says nothing.
	OwnerPolicy string
	// OnHub says that this cluster is the hub itself, where the hub's users are
	// themselves.
	OnHub bool
	// OIDC is the identity provider whose users are impersonated.
	OIDC *oidc.Options
	// ExtraKeys are keys of users' extras that the agent may assert besides
	// agentapi.ExtraKeys.
	ExtraKeys []string
	// EnableFleetIndex sends rows of objects to the fleet index.
	EnableFleetIndex bool
	// EnableImpersonation lets users of the hub in, as themselves.
	EnableImpersonation bool
	// AddonLeaseNamespace is where the addon's Lease is. Empty means none.
	AddonLeaseNamespace string
	// MinDrainDuration is how long the agent still serves dials after SIGTERM, even
	// when nothing is open: servers may have a dial for it on the way.
	MinDrainDuration time.Duration
	// GracefulShutdownTimeout is how long open connections may go on after that.
	GracefulShutdownTimeout time.Duration

	// IdleCarriers are kept ready to each proxy server, its control session among them, and
	// another is dialed as soon as one is used; MaxCarriers bounds all to one of them. Most
	// clusters are idle most of the time, and have one connection to each server. A server
	// closes what is above its own number, so more here need more there.
	IdleCarriers, MaxCarriers int
	// TargetDialTimeout is how long a target may take to accept a connection.
	TargetDialTimeout time.Duration
	// HandshakeTimeout bounds dialing a proxy server, and TLS with it.
	HandshakeTimeout time.Duration
	// TCPKeepAlive and TCPUserTimeout find a proxy server, or a target, that is gone.
	TCPKeepAlive, TCPUserTimeout time.Duration

	// EnablePortForwardProxy carries tunnels through the hub's kube-apiserver.
	EnablePortForwardProxy bool
	// HubKubeconfig is the credential for that.
	HubKubeconfig string
	// ProxyServerNamespace is where the proxy servers run on the hub.
	ProxyServerNamespace string
}

// NewOptions are the defaults. A dead connection is found within a minute, and a lost one
// is made again from 0.5 s on, with full jitter up to 30 s.
func NewOptions() *Options {
	return &Options{
		ProxyServerHost:         "127.0.0.1",
		ProxyServerPort:         identity.AgentServerPort,
		AgentID:                 cmp.Or(os.Getenv("PROXY_AGENT_ID"), uuid.NewString()),
		SyncInterval:            500 * time.Millisecond,
		SyncIntervalCap:         30 * time.Second,
		KeepaliveTime:           30 * time.Second,
		HealthServerPort:        8093,
		AdminBindAddress:        "127.0.0.1",
		AdminServerPort:         8094,
		PodName:                 os.Getenv("POD_NAME"),
		AgentInstallNamespace:   identity.DefaultAgentNamespace,
		HandlerBindAddress:      "127.0.0.1",
		HandlerPort:             7443,
		GracefulShutdownTimeout: 25 * time.Second,
		MinDrainDuration:        5 * time.Second,
		IdleCarriers:            1,
		MaxCarriers:             4096,
		TargetDialTimeout:       10 * time.Second,
		HandshakeTimeout:        10 * time.Second,
		TCPKeepAlive:            10 * time.Second,
		TCPUserTimeout:          30 * time.Second,
		ProxyServerNamespace:    "open-cluster-management-addon",
		OIDC:                    oidc.NewOptions(),
		EnableImpersonation:     true,
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ProxyServerHost, "proxy-server-host", o.ProxyServerHost, "host that all proxy servers are reached at, which their certificates must name")
	fs.IntVar(&o.ProxyServerPort, "proxy-server-port", o.ProxyServerPort, "port that all proxy servers are reached at")
	fs.StringVar(&o.AgentCert, "agent-cert", o.AgentCert, "PEM file with the certificate that the agent shows proxy servers, and the proxy API; read again when it changes")
	fs.StringVar(&o.AgentKey, "agent-key", o.AgentKey, "PEM file with the key of --agent-cert")
	fs.StringVar(&o.CACert, "ca-cert", o.CACert, "PEM file with the CAs of the hub; read again when it changes")
	fs.StringVar(&o.AgentID, "agent-id", o.AgentID, "unique ID of this process; the default is $PROXY_AGENT_ID, then a random one")
	fs.Lookup("agent-id").DefValue = "" // help is the same in each process
	fs.StringVar(&o.AgentIdentifiers, "agent-identifiers", o.AgentIdentifiers, "destinations that proxy servers send to this agent, URL-encoded, such as host=a&host=b")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the managed cluster; empty means $KUBECONFIG, then the pod's service account")
	fs.DurationVar(&o.SyncInterval, "sync-interval", o.SyncInterval, "most that the agent waits after a first failure to connect to a proxy server; the limit doubles up to --sync-interval-cap")
	fs.DurationVar(&o.SyncIntervalCap, "sync-interval-cap", o.SyncIntervalCap, "most that the agent waits after many failures; each pause is random, between nothing and the limit")
	fs.DurationVar(&o.KeepaliveTime, "keepalive-time", o.KeepaliveTime, "ping a proxy server that has been silent for this long")
	fs.StringVar(&o.HealthServerHost, "health-server-host", o.HealthServerHost, "address for probes and metrics; empty means all")
	fs.IntVar(&o.HealthServerPort, "health-server-port", o.HealthServerPort, "port for probes and metrics; 0 takes a free one")
	fs.StringVar(&o.AdminBindAddress, "admin-bind-address", o.AdminBindAddress, "address for metrics and profiles; empty means all")
	fs.IntVar(&o.AdminServerPort, "admin-server-port", o.AdminServerPort, "port for metrics and profiles; 0 takes a free one")
	fs.BoolVar(&o.EnableProfiling, "enable-profiling", o.EnableProfiling, "serve /debug/pprof on the admin port")
	fs.BoolVar(&o.EnableContentionProfiling, "enable-contention-profiling", o.EnableContentionProfiling, "record blocking for /debug/pprof/block; needs --enable-profiling")
	fs.StringVar(&o.ClusterName, "cluster-name", o.ClusterName, "this cluster's name on the hub; empty makes a plain agent, which dials whatever it is asked for")
	fs.StringVar(&o.PodName, "pod-name", o.PodName, "name of the agent's pod, which is a label of the metrics that the hub gets to see; the default is $POD_NAME")
	fs.StringVar(&o.AgentInstallNamespace, "agent-install-namespace", o.AgentInstallNamespace, "namespace of the agent, which is part of a name of the kube-apiserver in the tunnel")
	fs.StringVar(&o.HandlerBindAddress, "handler-bind-address", o.HandlerBindAddress, "address on which the handler of the proxy API's requests listens")
	fs.IntVar(&o.HandlerPort, "handler-port", o.HandlerPort, "port of that handler; 0 takes a free one")
	fs.StringVar(&o.ExposedServices, "exposed-services", o.ExposedServices, "folder with the list of exposed Services (ConfigMap cluster-proxy-exposed-services), which may be absent; changes need no restart; empty exposes none")
	fs.StringVar(&o.AdditionalServiceCA, "additional-service-ca", o.AdditionalServiceCA, "file with more CAs that Services' certificates are verified with, besides the cluster's own; may be absent")
	fs.StringVar(&o.DNSServer, "dns-server", o.DNSServer, "host:port of the DNS server that resolves Services; empty means the pod's own")
	fs.StringVar(&o.TLSProfile, "tls-profile", o.TLSProfile, "folder with OCM's ConfigMap ocm-tls-profile (minTLSVersion, cipherSuites), which may be absent; changes need no restart")
	fs.StringVar(&o.OwnerPolicy, "owner-policy", o.OwnerPolicy, "folder with the owner's ConfigMap cluster-proxy-owner-policy (readOnly, noStreams, noSecrets, noMetrics, noIndex, allowedReservedNames), which may be absent; changes need no restart")
	fs.BoolVar(&o.OnHub, "on-hub", o.OnHub, "this cluster is the hub itself: its users are asserted under their own names, service accounts included")
	o.OIDC.AddFlags(fs)
	fs.StringSliceVar(&o.ExtraKeys, "extra-keys", o.ExtraKeys, "keys of a user's extra, in lower case, that the agent may assert besides those of Kubernetes and OpenShift: its service account needs the right to each; it leaves out all others")
	fs.BoolVar(&o.EnableFleetIndex, "enable-fleet-index", o.EnableFleetIndex, "send the hub's fleet index the rows of objects that the agent's service account may list; the owner's noIndex refuses it")
	fs.BoolVar(&o.EnableImpersonation, "enable-impersonation", o.EnableImpersonation, "accept users of the hub, as themselves; without it, only credentials of the managed cluster and of --oidc-issuer-url count")
	fs.StringVar(&o.AddonLeaseNamespace, "addon-lease-namespace", o.AddonLeaseNamespace, "namespace of the Lease that is renewed while there is a tunnel; empty means none")
	fs.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout, "how long open connections may go on after --min-drain-duration")
	fs.DurationVar(&o.MinDrainDuration, "min-drain-duration", o.MinDrainDuration, "how long new dials are still served after SIGTERM, while proxy servers learn to use other agents")
	fs.IntVar(&o.IdleCarriers, "idle-carriers", o.IdleCarriers, "carriers kept ready to each proxy server, the control session among them; more are dialed as they are used")
	fs.IntVar(&o.MaxCarriers, "max-carriers", o.MaxCarriers, "most carriers to one proxy server, and so most connections")
	fs.DurationVar(&o.TargetDialTimeout, "target-dial-timeout", o.TargetDialTimeout, "how long a target may take to accept a connection")
	fs.DurationVar(&o.HandshakeTimeout, "handshake-timeout", o.HandshakeTimeout, "how long a proxy server may take to accept a connection, and to make the TLS handshake on it")
	fs.DurationVar(&o.TCPKeepAlive, "tcp-keepalive", o.TCPKeepAlive, "probe a connection to a proxy server or a target that has been silent for this long")
	fs.DurationVar(&o.TCPUserTimeout, "tcp-user-timeout", o.TCPUserTimeout, "close a connection to a proxy server or a target when sent bytes stay unacknowledged for this long")
	fs.BoolVar(&o.EnablePortForwardProxy, "enable-port-forward-proxy", o.EnablePortForwardProxy, "reach the proxy servers through port-forwards of the hub's kube-apiserver")
	fs.StringVar(&o.HubKubeconfig, "hub-kubeconfig", o.HubKubeconfig, "kubeconfig of the hub, for --enable-port-forward-proxy")
	fs.StringVar(&o.ProxyServerNamespace, "proxy-server-namespace", o.ProxyServerNamespace, "namespace of the proxy servers on the hub, for --enable-port-forward-proxy")
}

// tcp finds a proxy server, or a target, that is gone.
func (o *Options) tcp() dial.TCP {
	return dial.TCP{KeepAlive: o.TCPKeepAlive, UserTimeout: o.TCPUserTimeout}
}

// proxyServer is the address of the proxy servers.
func (o *Options) proxyServer() string {
	return net.JoinHostPort(o.ProxyServerHost, strconv.Itoa(o.ProxyServerPort))
}

// Validate reports all flags that are wrong, and what is allowed. It does no I/O.
func (o *Options) Validate() error {
	var errs flags.Errors
	if o.ProxyServerPort < 1 || o.ProxyServerPort > 65535 {
		errs.Refuse("proxy-server-port", o.ProxyServerPort, "it must be a port from 1 to 65535")
	}
	errs.Port("health-server-port", o.HealthServerPort)
	errs.Port("admin-server-port", o.AdminServerPort)
	errs.Invalid("agent-identifiers", o.AgentIdentifiers, checkIdentifiers(o.AgentIdentifiers))
	if o.AgentCert != "" {
		errs.Required("agent-key", o.AgentKey, "a PEM file, with --agent-cert")
	}
	if o.EnableContentionProfiling && !o.EnableProfiling {
		errs.Refuse("enable-contention-profiling", true, "it must be false without --enable-profiling")
	}
	flags.AtLeast(&errs, flags.Check[int]{Flag: "idle-carriers", Value: o.IdleCarriers, Least: 1}, flags.Check[int]{Flag: "max-carriers", Value: o.MaxCarriers, Least: max(o.IdleCarriers, 1)})
	flags.AtLeast(&errs, []flags.Check[time.Duration]{
		{Flag: "sync-interval", Value: o.SyncInterval, Least: time.Millisecond}, {Flag: "sync-interval-cap", Value: o.SyncIntervalCap, Least: max(o.SyncInterval, time.Millisecond)},
		{Flag: "keepalive-time", Value: o.KeepaliveTime, Least: time.Second},
		{Flag: "target-dial-timeout", Value: o.TargetDialTimeout, Least: time.Millisecond}, {Flag: "handshake-timeout", Value: o.HandshakeTimeout, Least: time.Millisecond},
		{Flag: "tcp-keepalive", Value: o.TCPKeepAlive, Least: time.Millisecond}, {Flag: "tcp-user-timeout", Value: o.TCPUserTimeout, Least: time.Millisecond},
		{Flag: "min-drain-duration", Value: o.MinDrainDuration}, {Flag: "graceful-shutdown-timeout", Value: o.GracefulShutdownTimeout},
	}...)
	errs.Add(o.OIDC.Validate())
	if o.EnablePortForwardProxy {
		errs.Required("hub-kubeconfig", o.HubKubeconfig, "a file, with --enable-port-forward-proxy")
		errs.Required("proxy-server-namespace", o.ProxyServerNamespace, "a namespace, with --enable-port-forward-proxy")
		if o.ProxyServerHost != "127.0.0.1" {
			errs.Refuse("proxy-server-host", o.ProxyServerHost, "it must be 127.0.0.1, where the agent listens itself, with --enable-port-forward-proxy")
		}
	}
	if o.ClusterName != "" {
		o.validateCluster(&errs)
	}
	return errs.Err()
}

// identifierKinds are konnectivity's kinds of destinations.
var identifierKinds = []string{"host", "ipv4", "ipv6", "cidr", "default-route"}

func checkIdentifiers(encoded string) error {
	decoded, err := url.ParseQuery(encoded)
	if err != nil {
		return err
	}
	for kind := range decoded {
		if !slices.Contains(identifierKinds, kind) {
			return fmt.Errorf("it has %q; the kinds are %s", kind, strings.Join(identifierKinds, ", "))
		}
	}
	return nil
}

// validateCluster checks what an agent of a cluster needs, and a plain one does not.
func (o *Options) validateCluster(errs *flags.Errors) {
	errs.Invalid("cluster-name", o.ClusterName, identity.ValidateCluster(o.ClusterName))
	errs.Port("handler-port", o.HandlerPort)
	if o.DNSServer != "" {
		errs.HostPort("dns-server", o.DNSServer)
	}
	errs.Required("agent-cert", o.AgentCert, "a PEM file, with --cluster-name")
	errs.Required("ca-cert", o.CACert, "a PEM file, with --cluster-name")
	errs.Required("agent-identifiers", o.AgentIdentifiers, "the names of the cluster, with --cluster-name")
}
