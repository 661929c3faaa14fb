package proxyapi

import (
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/session"
)

// Options configure the proxy API.
type Options struct {
	// ProxyServer is the host:port of the proxy server's port for clients.
	ProxyServer string
	// NextProxyServer is where to find proxy servers of this release while
	// ProxyServer leads to upstream's. Empty means nowhere.
	NextProxyServer string
	// ProxyCACert is the bundle that the proxy server is verified with.
	ProxyCACert string
	// ProxyCert and ProxyKey identify the proxy API to the proxy server and to
	// the agents.
	ProxyCert, ProxyKey string
	// AgentCACert is the bundle that agents are verified with.
	AgentCACert string
	// ServerCert and ServerKey are what clients get to see.
	ServerCert, ServerKey string

	ServerBindAddress string
	ServerPort        int
	HealthBindAddress string
	HealthPort        int

	// Peers are host:port addresses of the ports for peers of the other replicas. A host
	// may stand for several, and for this one too. Without any there is no such port.
	Peers           []string
	PeerBindAddress string
	PeerPort        int

	// FleetIndex is the host:port of the fleet index; empty for none.
	FleetIndex string

	// TLSProfile is a folder with OCM's ConfigMap ocm-tls-profile.
	TLSProfile string
	// Domain is the one that <cluster>.<domain> are hosts of; empty for none.
	Domain string
	// Namespace and ExposedServices name the ConfigMap with the Services that
	// may be asked for.
	Namespace, ExposedServices string
	// Audiences are what a hub's token must be for, beside identity.ProxyAPIAudience; empty
	// means the audience of the hub's kube-apiserver.
	Audiences []string
	// HubOutageGrace is how long answers of the hub stand while it cannot be
	// asked; 0 means not at all.
	HubOutageGrace time.Duration
	// AllowAnonymous lets requests without a credential go to the clusters.
	AllowAnonymous bool
	// How many requests, and how many streams (watches, logs, exec, Services),
	// are served at a time; 0 means as many as come.
	RequestsPerUser, RequestsPerCluster, StreamsPerUser, StreamsPerCluster int
	// How many of them are of one user at one cluster; 0 means as many as come.
	RequestsPerPair, StreamsPerPair int
	// How many requests for fleet views are served at a time, watches included, of all
	// users and of one; 0 means as many as come.
	ViewRequests, ViewRequestsPerUser int
	// KarmadaAPI serves Karmada's clusters/<name>/proxy and proxying/karmada/proxy, and its
	// ResourceRegistries.
	KarmadaAPI bool
	// KarmadaControlPlane is the cluster that gets the requests for what no registry
	// selects; empty for none.
	KarmadaControlPlane string
	// UI serves the page for people at /ui/.
	UI bool
	// Recording says which sessions are recorded, and where.
	Recording session.RecordingOptions
	// RevalidateStreams is how often the hub is asked again whether open streams would
	// still be allowed; 0 means never.
	RevalidateStreams time.Duration
	// Audit and Tracing are as in a kube-apiserver; there is none by default.
	Audit   *options.AuditOptions
	Tracing *options.TracingOptions

	// Kubeconfig of the hub; empty means $KUBECONFIG, then the pod's service account.
	Kubeconfig string

	// MinDrainDuration is how long requests are still taken after /readyz
	// fails, and after the last new connection since then, so that load balancers
	// notice. Three times that is the most.
	MinDrainDuration time.Duration
	// GracefulShutdownTimeout is how long requests in flight may go on after that.
	GracefulShutdownTimeout time.Duration
}

// NewOptions are the defaults.
func NewOptions() *Options {
	return &Options{
		ProxyServer:     "proxy-entrypoint.open-cluster-management-addon.svc:8090",
		ServerPort:      9092,
		HealthPort:      8000,
		PeerPort:        identity.ProxyAPIPeerPort,
		Namespace:       os.Getenv("POD_NAMESPACE"),
		ExposedServices: "cluster-proxy-exposed-services",
		RequestsPerUser: 400, RequestsPerCluster: 1000, RequestsPerPair: 100,
		StreamsPerUser: 6000, StreamsPerCluster: 8000, StreamsPerPair: 1000,
		ViewRequests: 200, ViewRequestsPerUser: 20,
		Recording:               session.NewRecordingOptions(),
		Audit:                   options.NewAuditOptions(),
		Tracing:                 options.NewTracingOptions(),
		MinDrainDuration:        10 * time.Second,
		GracefulShutdownTimeout: 10 * time.Minute,
		HubOutageGrace:          10 * time.Minute,
		RevalidateStreams:       4 * time.Second,
	}
}

// AddFlags puts the options on the command line.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ProxyServer, "proxy-server", o.ProxyServer, "host:port at which the proxy server takes clients")
	fs.StringVar(&o.NextProxyServer, "next-proxy-server", o.NextProxyServer, "host:port of proxy servers to use while those at --proxy-server are of OCM's own cluster-proxy, in a move from it; they need the same names in their certificates; empty means to wait until --proxy-server leads to others")
	fs.StringVar(&o.ProxyCACert, "proxy-ca-cert", o.ProxyCACert, "PEM file with the CA bundle of the proxy server's certificate")
	fs.StringVar(&o.ProxyCert, "proxy-cert", o.ProxyCert, "PEM file with the client certificate for the proxy server and the agents")
	fs.StringVar(&o.ProxyKey, "proxy-key", o.ProxyKey, "PEM file with the key of --proxy-cert")
	fs.StringVar(&o.AgentCACert, "agent-ca-cert", o.AgentCACert, "PEM file with the CA bundle of the agents' certificates")
	fs.StringVar(&o.ServerCert, "server-cert", o.ServerCert, "PEM file with the serving certificate")
	fs.StringVar(&o.ServerKey, "server-key", o.ServerKey, "PEM file with the key of --server-cert")
	fs.StringVar(&o.ServerBindAddress, "server-bind-address", o.ServerBindAddress, "address to serve on; empty means all")
	fs.IntVar(&o.ServerPort, "server-port", o.ServerPort, "port to serve on")
	fs.StringVar(&o.HealthBindAddress, "health-bind-address", o.HealthBindAddress, "address of /livez, /readyz and /metrics; empty means all")
	fs.IntVar(&o.HealthPort, "health-port", o.HealthPort, "port of /livez, /readyz and /metrics")
	fs.StringSliceVar(&o.Peers, "peers", o.Peers, "host:port of the ports for peers of the other replicas, which are asked for resourceVersions of fleet views that this one does not know, and get those of this one when it drains; all addresses of a host count, so a headless Service is enough; empty means that there are no other replicas; replicas know each other by --proxy-cert, which needs the proxy API's role")
	fs.StringVar(&o.PeerBindAddress, "peer-bind-address", o.PeerBindAddress, "address for --peer-port; empty means all")
	fs.IntVar(&o.PeerPort, "peer-port", o.PeerPort, "port for the other replicas; it is open with --peers only")
	fs.StringVar(&o.TLSProfile, "tls-profile", o.TLSProfile, "folder with OCM's ConfigMap ocm-tls-profile (minTLSVersion, cipherSuites), which may be absent; changes need no restart")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the hub; empty means $KUBECONFIG, then the pod's service account")
	fs.StringVar(&o.Domain, "cluster-domain", o.Domain, "domain below which every cluster has a host, <cluster>.<domain>; empty means that there are only paths; the serving certificate must be for *.<domain>")
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of --exposed-services; the default is $POD_NAMESPACE")
	fs.StringVar(&o.ExposedServices, "exposed-services", o.ExposedServices, "name of the ConfigMap with the Services on clusters that may be asked for")
	fs.StringSliceVar(&o.Audiences, "api-audiences", o.Audiences, "audiences that tokens of the hub may be for, beside "+identity.ProxyAPIAudience+"; empty means that of the hub's kube-apiserver")
	fs.DurationVar(&o.HubOutageGrace, "hub-outage-grace", o.HubOutageGrace, "how long users that the hub let in are still let in while its kube-apiserver cannot be asked: for what they did before, with credentials that have not expired; 0 turns it off")
	fs.BoolVar(&o.AllowAnonymous, "allow-anonymous", o.AllowAnonymous, "let requests without a credential go to the clusters, which know them as system:anonymous, instead of answering 401")
	fs.DurationVar(&o.RevalidateStreams, "revalidate-streams", o.RevalidateStreams, "how often the hub is asked again whether watches, logs, exec, attach, port-forward and other streams that are open would still be allowed; those that would not be are ended; 0 means never; streams of one caller to one cluster with one verb cost one question")
	fs.IntVar(&o.RequestsPerUser, "max-requests-per-user", o.RequestsPerUser, "how many requests of one user are served at a time; 0 means as many as come")
	fs.IntVar(&o.RequestsPerCluster, "max-requests-per-cluster", o.RequestsPerCluster, "how many requests to one cluster are served at a time; 0 means as many as come")
	fs.IntVar(&o.RequestsPerPair, "max-requests-per-user-and-cluster", o.RequestsPerPair, "how many requests of one user to one cluster are served at a time, so that a slow cluster does not take what the user has for others; 0 means as many as come")
	fs.IntVar(&o.StreamsPerUser, "max-streams-per-user", o.StreamsPerUser, "how many watches, logs, exec, attach, port-forward and connections to Services one user may have open; 0 means as many as come")
	fs.IntVar(&o.StreamsPerCluster, "max-streams-per-cluster", o.StreamsPerCluster, "how many of them may be open to one cluster; 0 means as many as come")
	fs.IntVar(&o.StreamsPerPair, "max-streams-per-user-and-cluster", o.StreamsPerPair, "how many of them one user may have open to one cluster; 0 means as many as come")
	fs.IntVar(&o.ViewRequests, "max-view-requests", o.ViewRequests, "how many requests for fleet views are served at a time; one asks many clusters, and counts once; watches of views count as other watches do; 0 means as many as come")
	fs.IntVar(&o.ViewRequestsPerUser, "max-view-requests-per-user", o.ViewRequestsPerUser, "how many of them one user may have; 0 means as many as come")
	fs.BoolVar(&o.KarmadaAPI, "karmada-api", o.KarmadaAPI, "serve Karmada's API too: clusters/<name>/proxy of cluster.karmada.io, and ResourceRegistries and proxying/karmada/proxy of search.karmada.io")
	fs.StringVar(&o.KarmadaControlPlane, "karmada-control-plane", o.KarmadaControlPlane, "name of the managed cluster that gets the requests to proxying/karmada/proxy for resources that no ResourceRegistry selects; empty means that they are answered 404")
	fs.StringVar(&o.FleetIndex, "fleet-index", o.FleetIndex, "host:port of the fleet index, which answers lists of views that read Indexed, and searches; empty means that there is none")
	fs.BoolVar(&o.UI, "ui", o.UI, "serve a page for people at /ui/, which shows a user of the hub the clusters, views and sessions that they may see; the page itself is public and contains nothing")
	o.Recording.AddFlags(fs)
	o.Audit.AddFlags(fs)
	o.Tracing.AddFlags(fs)
	fs.DurationVar(&o.MinDrainDuration, "min-drain-duration", o.MinDrainDuration, "how long new requests are still served after SIGTERM and after the last connection since then, three times as long at most, while load balancers learn that they should go elsewhere")
	fs.DurationVar(&o.GracefulShutdownTimeout, "graceful-shutdown-timeout", o.GracefulShutdownTimeout, "how long open requests may go on after --min-drain-duration")
}

// Validate reports all flags that are wrong, and what is allowed. It does no I/O.
func (o *Options) Validate() error {
	var errs flags.Errors
	errs.HostPort("proxy-server", o.ProxyServer)
	if o.NextProxyServer != "" {
		errs.HostPort("next-proxy-server", o.NextProxyServer)
	}
	for _, file := range []struct{ flag, value string }{
		{"proxy-ca-cert", o.ProxyCACert}, {"proxy-cert", o.ProxyCert}, {"proxy-key", o.ProxyKey},
		{"agent-ca-cert", o.AgentCACert}, {"server-cert", o.ServerCert}, {"server-key", o.ServerKey},
	} {
		errs.Required(file.flag, file.value, "a PEM file")
	}
	errs.Port("server-port", o.ServerPort)
	errs.Port("health-port", o.HealthPort)
	errs.Port("peer-port", o.PeerPort)
	for _, peer := range o.Peers {
		errs.HostPort("peers", peer)
	}
	flags.AtLeast(&errs, []flags.Check[int]{
		{Flag: "max-requests-per-user", Value: o.RequestsPerUser}, {Flag: "max-requests-per-cluster", Value: o.RequestsPerCluster},
		{Flag: "max-requests-per-user-and-cluster", Value: o.RequestsPerPair}, {Flag: "max-streams-per-user-and-cluster", Value: o.StreamsPerPair},
		{Flag: "max-view-requests", Value: o.ViewRequests}, {Flag: "max-view-requests-per-user", Value: o.ViewRequestsPerUser},
		{Flag: "max-streams-per-user", Value: o.StreamsPerUser}, {Flag: "max-streams-per-cluster", Value: o.StreamsPerCluster},
	}...)
	if o.FleetIndex != "" {
		errs.HostPort("fleet-index", o.FleetIndex)
	}
	if o.Domain != "" && identity.ValidateCluster(o.Domain) != nil {
		errs.Refuse("cluster-domain", o.Domain, "it must be a DNS name in lower case")
	}
	switch {
	case o.KarmadaControlPlane == "":
	case identity.ValidateCluster(o.KarmadaControlPlane) != nil:
		errs.Refuse("karmada-control-plane", o.KarmadaControlPlane, "it must be the name of a managed cluster")
	case !o.KarmadaAPI:
		errs.Refuse("karmada-control-plane", o.KarmadaControlPlane, "it needs --karmada-api")
	}
	o.Recording.Validate(&errs)
	errs = append(errs, o.Audit.Validate()...)
	errs = append(errs, o.Tracing.Validate()...)
	flags.AtLeast(&errs, []flags.Check[time.Duration]{
		{Flag: "min-drain-duration", Value: o.MinDrainDuration}, {Flag: "graceful-shutdown-timeout", Value: o.GracefulShutdownTimeout},
		{Flag: "hub-outage-grace", Value: o.HubOutageGrace}, {Flag: "revalidate-streams", Value: o.RevalidateStreams},
	}...)
	return errs.Err()
}

func (o *Options) hubConfig() (*rest.Config, error) {
	config, err := flags.RESTConfig("kubeconfig", o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	// Requests of users wait for answers of the hub. Their bounds are here,
	// and in the hub's own flow control.
	config.QPS = -1
	return config, nil
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
