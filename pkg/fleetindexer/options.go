package fleetindexer

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// storeVariable names the environment variable with the default of --store: a URL with a password is not for arguments,
// which others on the machine can read.
const storeVariable, defaultStore = "FLEET_INDEX_STORE", "/var/lib/fleet-index/index.db"

// maxResources is how many resources an agent takes.
const maxResources = 64

// Options configure the fleet index.
type Options struct {
	// Store is the path of a SQLite database, or the URL of a PostgreSQL one.
	Store string
	// MaxRows bounds the rows of each cluster.
	MaxRows int
	// Resources are those that are indexed, as RESOURCE.GROUP.
	Resources []string

	// ProxyServer is the host:port of the proxy server's port for clients.
	ProxyServer string
	// ProxyCACert is the bundle that the proxy server is verified with.
	ProxyCACert string
	// ProxyCert and ProxyKey identify the index to the proxy server and to the agents.
	ProxyCert, ProxyKey string
	// AgentCACert is the bundle that agents are verified with.
	AgentCACert string
	// TLSProfile is a folder with OCM's ConfigMap ocm-tls-profile.
	TLSProfile string

	// BindAddress and Port are those of the port for the proxy API.
	BindAddress string
	Port        int
	// StaleRightsSeconds is how long the last decision of a cluster stands while it is away.
	StaleRightsSeconds int

	HealthBindAddress string
	HealthPort        int

	// Replica names this one of the replicas that share a PostgreSQL database, and Namespace is that of their
	// Leases.
	Replica, Namespace string
	// Kubeconfig of the hub; empty means $KUBECONFIG, then the pod's service account.
	Kubeconfig string
}

// NewOptions returns the defaults.
func NewOptions() *Options {
	return &Options{
		Store:              cmp.Or(os.Getenv(storeVariable), defaultStore),
		MaxRows:            fleetindex.DefaultMaxRows,
		ProxyServer:        "proxy-entrypoint.open-cluster-management-addon.svc:8090",
		Port:               identity.FleetIndexPort,
		StaleRightsSeconds: 24 * 60 * 60,
		HealthPort:         8000,
		Replica:            os.Getenv("POD_NAME"),
		Namespace:          os.Getenv("POD_NAMESPACE"),
	}
}

// AddFlags puts the options on the command line.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Store, "store", o.Store, "path of a SQLite database, which is made if there is none and belongs to one process, or URL of a PostgreSQL database, postgres://…, which replicas share; the default is $FLEET_INDEX_STORE, for a URL with a password, or else "+defaultStore)
	fs.Lookup("store").DefValue = "" // it may be a secret, and help is the same in each process
	fs.IntVar(&o.MaxRows, "max-rows-per-cluster", o.MaxRows, "how many rows of one cluster are kept; those beyond are left out, and the cluster is said to be incomplete")
	fs.StringSliceVar(&o.Resources, "resources", o.Resources, "resources that are indexed, as RESOURCE.GROUP, or RESOURCE of the core group; agents need get, list and watch for them; never secrets")
	fs.StringVar(&o.ProxyServer, "proxy-server", o.ProxyServer, "host:port at which the proxy server takes clients")
	fs.StringVar(&o.ProxyCACert, "proxy-ca-cert", o.ProxyCACert, "PEM file with the CA bundle of the proxy server's certificate")
	fs.StringVar(&o.ProxyCert, "proxy-cert", o.ProxyCert, "PEM file with the certificate for the proxy server, the agents and the proxy API, which needs the fleet index's role")
	fs.StringVar(&o.ProxyKey, "proxy-key", o.ProxyKey, "PEM file with the key of --proxy-cert")
	fs.StringVar(&o.AgentCACert, "agent-ca-cert", o.AgentCACert, "PEM file with the CA bundle of the agents' certificates")
	fs.StringVar(&o.TLSProfile, "tls-profile", o.TLSProfile, "folder with OCM's ConfigMap ocm-tls-profile (minTLSVersion, cipherSuites), which may be absent; changes need no restart")
	fs.StringVar(&o.BindAddress, "bind-address", o.BindAddress, "address for --port; empty means all")
	fs.IntVar(&o.Port, "port", o.Port, "port for the proxy API, which is known by its certificate's role; --proxy-cert serves it")
	fs.IntVar(&o.StaleRightsSeconds, "stale-rights-seconds", o.StaleRightsSeconds, "how long the last decision of a cluster on what a user may list stands while the cluster is away; 0 shows nothing of it then")
	fs.StringVar(&o.HealthBindAddress, "health-bind-address", o.HealthBindAddress, "address of /livez, /readyz and /metrics; empty means all")
	fs.IntVar(&o.HealthPort, "health-port", o.HealthPort, "port of /livez, /readyz and /metrics")
	fs.StringVar(&o.Replica, "replica", o.Replica, "name of this replica, with which its Lease is named; the default is $POD_NAME; used with PostgreSQL only")
	fs.Lookup("replica").DefValue = "" // help is the same in each process
	fs.StringVar(&o.Namespace, "namespace", o.Namespace, "namespace of the replicas' Leases; the default is $POD_NAMESPACE; used with PostgreSQL only")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the hub; empty means $KUBECONFIG, then the pod's service account")
}

// isShared reports whether replicas share the store.
func (o *Options) isShared() bool { return fleetindex.IsShared(o.Store) }

// Validate reports all flags that are wrong, and what is allowed. It does no I/O.
func (o *Options) Validate() error {
	var errs flags.Errors
	errs.Required("store", o.Store, "a path or a URL")
	errs.HostPort("proxy-server", o.ProxyServer)
	for _, file := range []struct{ flag, value string }{
		{"proxy-ca-cert", o.ProxyCACert}, {"proxy-cert", o.ProxyCert}, {"proxy-key", o.ProxyKey}, {"agent-ca-cert", o.AgentCACert},
	} {
		errs.Required(file.flag, file.value, "a PEM file")
	}
	errs.Port("port", o.Port)
	errs.Port("health-port", o.HealthPort)
	flags.AtLeast(&errs, flags.Check[int]{Flag: "stale-rights-seconds", Value: o.StaleRightsSeconds, Least: 0})
	flags.AtLeast(&errs, flags.Check[int]{Flag: "max-rows-per-cluster", Value: o.MaxRows, Least: 1})
	if n := len(o.Resources); n == 0 || n > maxResources {
		errs.Add(fmt.Errorf("--resources has %d resources; it may have 1 to %d", n, maxResources))
	}
	for _, name := range o.Resources {
		if _, err := feed.ParseResource(name); err != nil {
			errs.Invalid("resources", name, err)
		}
	}
	if o.isShared() {
		errs.Required("replica", o.Replica, "a name")
		errs.Required("namespace", o.Namespace, "a namespace")
	}
	return errs.Err()
}

// indexed returns the resources in one order, each once.
func (o *Options) indexed() []feed.Resource {
	var all []feed.Resource
	for _, name := range slices.Compact(slices.Sorted(slices.Values(o.Resources))) {
		resource, _ := feed.ParseResource(name) // Validate looked at it
		all = append(all, resource)
	}
	return all
}
