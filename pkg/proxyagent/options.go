package proxyagent

import (
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/spf13/pflag"
	"sigs.k8s.io/apiserver-network-proxy/cmd/agent/app/options"

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
	// DrainTimeout is how long connections may go on after SIGTERM.
	DrainTimeout time.Duration
	// MinDrainDuration is how long the agent stays even when nothing is open:
	// servers may still have a dial for it on the way.
	MinDrainDuration time.Duration

	// IdleCarriers are kept ready to each proxy server; MaxCarriers bounds all
	// to one of them.
	IdleCarriers, MaxCarriers int
	// TargetDialTimeout is how long a target may take to accept a connection.
	TargetDialTimeout time.Duration
	// HandshakeTimeout bounds dialing a proxy server, and TLS with it.
	HandshakeTimeout time.Duration
	// TCPKeepAlive and TCPUserTimeout find a proxy server that is gone.
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
		Konnectivity:          konnectivity,
		AgentInstallNamespace: identity.DefaultAgentNamespace,
		HandlerBindAddress:    "127.0.0.1",
		HandlerPort:           7443,
		DrainTimeout:          30 * time.Second,
		MinDrainDuration:      5 * time.Second,
		IdleCarriers:          2,
		MaxCarriers:           4096,
		TargetDialTimeout:     10 * time.Second,
		HandshakeTimeout:      10 * time.Second,
		TCPKeepAlive:          10 * time.Second,
		TCPUserTimeout:        30 * time.Second,
		ProxyServerNamespace:  "open-cluster-management-addon",
		OIDC:                  oidc.NewOptions(),
		EnableImpersonation:   true,
	}
}

// AddFlags adds the flags.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.AddFlagSet(o.Konnectivity.Flags())
	flags.Lookup("kubeconfig").Usage = "kubeconfig of the managed cluster; without it $KUBECONFIG, then the pod's service account"
	flags.StringVar(&o.ClusterName, "cluster-name", o.ClusterName, "this cluster's name on the hub; empty makes a plain konnectivity agent, which dials whatever it is asked for")
	flags.StringVar(&o.AgentInstallNamespace, "agent-install-namespace", o.AgentInstallNamespace, "namespace of the agent, which is part of a name of the kube-apiserver in the tunnel")
	flags.StringVar(&o.HandlerBindAddress, "handler-bind-address", o.HandlerBindAddress, "address on which the handler of the proxy API's requests listens")
	flags.IntVar(&o.HandlerPort, "handler-port", o.HandlerPort, "port of that handler; 0 takes a free one")
	flags.StringVar(&o.ExposedServices, "exposed-services", o.ExposedServices, "folder with the list of exposed Services (ConfigMap cluster-proxy-exposed-services), which may be absent; changes need no restart; empty exposes none")
	flags.StringVar(&o.AdditionalServiceCA, "additional-service-ca", o.AdditionalServiceCA, "file with more CAs that Services' certificates are verified with, besides the cluster's own; may be absent")
	flags.StringVar(&o.DNSServer, "dns-server", o.DNSServer, "host:port of the DNS server that resolves Services; empty for the pod's own")
	flags.StringVar(&o.TLSProfile, "tls-profile", o.TLSProfile, "folder with OCM's ConfigMap ocm-tls-profile (minTLSVersion, cipherSuites), which may be absent; changes need no restart")
	flags.StringVar(&o.OwnerPolicy, "owner-policy", o.OwnerPolicy, "folder with the owner's ConfigMap cluster-proxy-owner-policy (readOnly, noStreams, noSecrets, allowedReservedNames), which may be absent; changes need no restart")
	flags.BoolVar(&o.OnHub, "on-hub", o.OnHub, "this cluster is the hub itself: its users are asserted under their own names, service accounts included")
	o.OIDC.AddFlags(flags)
	flags.BoolVar(&o.EnableImpersonation, "enable-impersonation", o.EnableImpersonation, "let users of the hub in, as themselves; without, only credentials of the managed cluster and of --oidc-issuer-url count")
	flags.StringVar(&o.AddonLeaseNamespace, "addon-lease-namespace", o.AddonLeaseNamespace, "namespace of the Lease that is renewed while there is a tunnel; empty for none")
	flags.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "how long connections may go on after SIGTERM")
	flags.DurationVar(&o.MinDrainDuration, "min-drain-duration", o.MinDrainDuration, "how long the agent stays after SIGTERM even if no connection is open")
	flags.Lookup("sync-interval").Usage = "how often the agent looks whether it has a tunnel to every proxy server, and the most that it waits after a first failure"
	flags.Lookup("sync-interval-cap").Usage = "the most that the agent waits after many failures; each pause is between nothing and a limit that doubles up to this"
	flags.IntVar(&o.IdleCarriers, "idle-carriers", o.IdleCarriers, "carriers kept ready to each proxy server; more are dialed as they are used")
	flags.IntVar(&o.MaxCarriers, "max-carriers", o.MaxCarriers, "most carriers to one proxy server, and so most connections")
	flags.DurationVar(&o.TargetDialTimeout, "target-dial-timeout", o.TargetDialTimeout, "how long a target may take to accept a connection")
	flags.DurationVar(&o.HandshakeTimeout, "handshake-timeout", o.HandshakeTimeout, "how long a proxy server may take to accept a connection, and to make the TLS handshake on it")
	flags.DurationVar(&o.TCPKeepAlive, "tcp-keepalive", o.TCPKeepAlive, "probe a connection to a proxy server that has been silent for this long")
	flags.DurationVar(&o.TCPUserTimeout, "tcp-user-timeout", o.TCPUserTimeout, "give a connection to a proxy server up when sent bytes stay unacknowledged for this long")
	flags.BoolVar(&o.EnablePortForwardProxy, "enable-port-forward-proxy", o.EnablePortForwardProxy, "reach the proxy servers through port-forwards of the hub's kube-apiserver")
	flags.StringVar(&o.HubKubeconfig, "hub-kubeconfig", o.HubKubeconfig, "kubeconfig of the hub, for --enable-port-forward-proxy")
	flags.StringVar(&o.ProxyServerNamespace, "proxy-server-namespace", o.ProxyServerNamespace, "namespace of the proxy servers on the hub, for --enable-port-forward-proxy")
}

// Validate names the flag that is wrong and says what is allowed.
func (o *Options) Validate() error {
	// Port 0 takes a free one; konnectivity's check does not know that.
	k := *o.Konnectivity
	for _, port := range []*int{&k.HealthServerPort, &k.AdminServerPort} {
		if *port == 0 {
			*port = 1
		}
	}
	if err := k.Validate(); err != nil {
		return err
	}
	if o.IdleCarriers < 1 || o.MaxCarriers < o.IdleCarriers {
		return fmt.Errorf("--idle-carriers is %d and --max-carriers %d: the first must be at least 1, and the second at least the first", o.IdleCarriers, o.MaxCarriers)
	}
	if err := o.validateTimes(); err != nil {
		return err
	}
	if err := o.OIDC.Validate(); err != nil {
		return err
	}
	if o.MinDrainDuration < 0 || o.DrainTimeout < o.MinDrainDuration {
		return fmt.Errorf("--drain-timeout is %s and --min-drain-duration %s: both must be at least 0, and the first at least the second", o.DrainTimeout, o.MinDrainDuration)
	}
	if o.EnablePortForwardProxy && (o.HubKubeconfig == "" || o.ProxyServerNamespace == "") {
		return errors.New("--enable-port-forward-proxy needs --hub-kubeconfig and --proxy-server-namespace")
	}
	if o.EnablePortForwardProxy && o.Konnectivity.ProxyServerHost != "127.0.0.1" {
		return fmt.Errorf("--proxy-server-host is %q: with --enable-port-forward-proxy it must be 127.0.0.1, where the agent listens itself", o.Konnectivity.ProxyServerHost)
	}
	if o.ClusterName == "" {
		return nil
	}
	if err := identity.ValidateCluster(o.ClusterName); err != nil {
		return fmt.Errorf("--cluster-name: %w", err)
	}
	if o.HandlerPort < 0 || o.HandlerPort > 65535 {
		return fmt.Errorf("--handler-port is %d: it must be 0 to 65535", o.HandlerPort)
	}
	if _, port, err := net.SplitHostPort(o.DNSServer); o.DNSServer != "" && (err != nil || port == "") {
		return fmt.Errorf("--dns-server is %q: it must be host:port", o.DNSServer)
	}
	for flag, value := range map[string]string{"--agent-cert": o.Konnectivity.AgentCert, "--ca-cert": o.Konnectivity.CaCert, "--agent-identifiers": o.Konnectivity.AgentIdentifiers} {
		if value == "" {
			return fmt.Errorf("%s is empty: with --cluster-name it must be set", flag)
		}
	}
	return nil
}

func (o *Options) validateTimes() error {
	k := o.Konnectivity
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{
		{"--sync-interval", k.SyncInterval}, {"--sync-interval-cap", k.SyncIntervalCap},
		{"--target-dial-timeout", o.TargetDialTimeout}, {"--handshake-timeout", o.HandshakeTimeout},
		{"--tcp-keepalive", o.TCPKeepAlive}, {"--tcp-user-timeout", o.TCPUserTimeout},
	} {
		if d.value < time.Millisecond {
			return fmt.Errorf("%s is %s: it must be at least 1ms", d.flag, d.value)
		}
	}
	return nil
}
