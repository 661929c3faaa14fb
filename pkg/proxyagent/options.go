package proxyagent

import (
	"os"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"

	"open-cluster-management.io/cluster-proxy/pkg/dial"
	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/oidc"
)

// Options are the flags of the agent. Use NewOptions.
type Options struct {
	// Konnectivity are those of konnectivity's agent, with its names.
	Konnectivity *options.GrpcProxyAgentOptions

	// ClusterName is this cluster's name on the hub. Empty makes a plain
	// konnectivity agent.
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

// NewOptions are the defaults. Where they differ from konnectivity's, it is to
// find a dead connection within a minute and not within an hour, and to come
// back from 0.5 s on, with full jitter up to 30 s.
func NewOptions() *Options {
	konnectivity := options.NewGrpcProxyAgentOptions()
	konnectivity.KeepaliveTime = 30 * time.Second
	konnectivity.SyncInterval = 500 * time.Millisecond
	konnectivity.SyncIntervalCap = 30 * time.Second
	return &Options{
		Konnectivity:            konnectivity,
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
	fs.AddFlagSet(o.Konnectivity.Flags())
	fs.Lookup("agent-id").DefValue = "" // help is the same in each process
	fs.Lookup("kubeconfig").Usage = "kubeconfig of the managed cluster; empty means $KUBECONFIG, then the pod's service account"
	fs.StringVar(&o.ClusterName, "cluster-name", o.ClusterName, "this cluster's name on the hub; empty makes a plain konnectivity agent, which dials whatever it is asked for")
	fs.StringVar(&o.PodName, "pod-name", o.PodName, "name of the agent's pod, which is a label of the metrics that the hub gets to see; the default is $POD_NAME")
	fs.StringVar(&o.AgentInstallNamespace, "agent-install-namespace", o.AgentInstallNamespace, "namespace of the agent, which is part of a name of the kube-apiserver in the tunnel")
	fs.StringVar(&o.HandlerBindAddress, "handler-bind-address", o.HandlerBindAddress, "address on which the handler of the proxy API's requests listens")
	fs.IntVar(&o.HandlerPort, "handler-port", o.HandlerPort, "port of that handler; 0 takes a free one")
	fs.StringVar(&o.ExposedServices, "exposed-services", o.ExposedServices, "folder with the list of exposed Services (ConfigMap cluster-proxy-exposed-services), which may be absent; changes need no restart; empty exposes none")
	fs.StringVar(&o.AdditionalServiceCA, "additional-service-ca", o.AdditionalServiceCA, "file with more CAs that Services' certificates are verified with, besides the cluster's own; may be absent")
	fs.StringVar(&o.DNSServer, "dns-server", o.DNSServer, "host:port of the DNS server that resolves Services; empty means the pod's own")
	fs.StringVar(&o.TLSProfile, "tls-profile", o.TLSProfile, "folder with OCM's ConfigMap ocm-tls-profile (minTLSVersion, cipherSuites), which may be absent; changes need no restart")
	fs.StringVar(&o.OwnerPolicy, "owner-policy", o.OwnerPolicy, "folder with the owner's ConfigMap cluster-proxy-owner-policy (readOnly, noStreams, noSecrets, noMetrics, allowedReservedNames), which may be absent; changes need no restart")
	fs.BoolVar(&o.OnHub, "on-hub", o.OnHub, "this cluster is the hub itself: its users are asserted under their own names, service accounts included")
	o.OIDC.AddFlags(fs)
	fs.BoolVar(&o.EnableImpersonation, "enable-impersonation", o.EnableImpersonation, "accept users of the hub, as themselves; without it, only credentials of the managed cluster and of --oidc-issuer-url count")
	fs.StringVar(&o.AddonLeaseNamespace, "addon-lease-namespace", o.AddonLeaseNamespace, "namespace of the Lease that is renewed while there is a tunnel; empty means none")
	fs.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout, "how long open connections may go on after --min-drain-duration")
	fs.DurationVar(&o.MinDrainDuration, "min-drain-duration", o.MinDrainDuration, "how long new dials are still served after SIGTERM, while proxy servers learn that they should go elsewhere")
	fs.Lookup("sync-interval").Usage = "how often the agent looks whether it has a tunnel to each proxy server that it wants, and the most that it waits after a first failure"
	fs.Lookup("sync-interval-cap").Usage = "the most that the agent waits after many failures; each pause is between nothing and a limit that doubles up to this"
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

// Validate reports all flags that are wrong, and what is allowed. It does no
// I/O, but for konnectivity's check that certificates exist.
func (o *Options) Validate() error {
	var errs flags.Errors
	// Port 0 takes a free one; konnectivity's check does not know that.
	k := *o.Konnectivity
	for _, port := range []*int{&k.HealthServerPort, &k.AdminServerPort} {
		if *port == 0 {
			*port = 1
		}
	}
	errs.Add(k.Validate())
	flags.AtLeast(&errs, flags.Check[int]{Flag: "idle-carriers", Value: o.IdleCarriers, Least: 1}, flags.Check[int]{Flag: "max-carriers", Value: o.MaxCarriers, Least: max(o.IdleCarriers, 1)})
	flags.AtLeast(&errs, []flags.Check[time.Duration]{
		{Flag: "sync-interval", Value: k.SyncInterval, Least: time.Millisecond}, {Flag: "sync-interval-cap", Value: k.SyncIntervalCap, Least: time.Millisecond},
		{Flag: "target-dial-timeout", Value: o.TargetDialTimeout, Least: time.Millisecond}, {Flag: "handshake-timeout", Value: o.HandshakeTimeout, Least: time.Millisecond},
		{Flag: "tcp-keepalive", Value: o.TCPKeepAlive, Least: time.Millisecond}, {Flag: "tcp-user-timeout", Value: o.TCPUserTimeout, Least: time.Millisecond},
		{Flag: "min-drain-duration", Value: o.MinDrainDuration}, {Flag: "graceful-shutdown-timeout", Value: o.GracefulShutdownTimeout},
	}...)
	errs.Add(o.OIDC.Validate())
	if o.EnablePortForwardProxy {
		errs.Required("hub-kubeconfig", o.HubKubeconfig, "a file, with --enable-port-forward-proxy")
		errs.Required("proxy-server-namespace", o.ProxyServerNamespace, "a namespace, with --enable-port-forward-proxy")
		if k.ProxyServerHost != "127.0.0.1" {
			errs.Refuse("proxy-server-host", k.ProxyServerHost, "it must be 127.0.0.1, where the agent listens itself, with --enable-port-forward-proxy")
		}
	}
	if o.ClusterName != "" {
		o.validateCluster(&errs)
	}
	return errs.Err()
}

// validateCluster checks what an agent of a cluster needs, and konnectivity's does not.
func (o *Options) validateCluster(errs *flags.Errors) {
	errs.Invalid("cluster-name", o.ClusterName, identity.ValidateCluster(o.ClusterName))
	errs.Port("handler-port", o.HandlerPort)
	if o.DNSServer != "" {
		errs.HostPort("dns-server", o.DNSServer)
	}
	errs.Required("agent-cert", o.Konnectivity.AgentCert, "a PEM file, with --cluster-name")
	errs.Required("ca-cert", o.Konnectivity.CaCert, "a PEM file, with --cluster-name")
	errs.Required("agent-identifiers", o.Konnectivity.AgentIdentifiers, "the names of the cluster, with --cluster-name")
}
