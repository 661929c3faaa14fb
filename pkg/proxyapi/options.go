package proxyapi

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Options configure the proxy API.
type Options struct {
	// ProxyServer is the host:port of the proxy server's port for clients.
	ProxyServer string
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

	// TLSProfile is a folder with OCM's ConfigMap ocm-tls-profile.
	TLSProfile string

	// Kubeconfig of the hub; empty means $KUBECONFIG, then in-cluster.
	Kubeconfig string

	// MinDrainDuration is how long requests are still taken after /readyz
	// fails, so that load balancers notice.
	MinDrainDuration time.Duration
	// DrainTimeout is how long requests in flight may go on after that.
	DrainTimeout time.Duration
}

// NewOptions are the defaults.
func NewOptions() *Options {
	return &Options{
		ProxyServer:      "proxy-entrypoint.open-cluster-management-addon.svc:8090",
		ServerPort:       9092,
		HealthPort:       8000,
		MinDrainDuration: 10 * time.Second,
		DrainTimeout:     10 * time.Minute,
	}
}

// AddFlags puts the options on the command line.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.ProxyServer, "proxy-server", o.ProxyServer, "host:port at which the proxy server takes clients")
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
	fs.StringVar(&o.TLSProfile, "tls-profile", o.TLSProfile, "folder with OCM's ConfigMap ocm-tls-profile (minTLSVersion, cipherSuites), which may be absent; changes need no restart")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", o.Kubeconfig, "kubeconfig of the hub; empty means $KUBECONFIG, then in-cluster")
	fs.DurationVar(&o.MinDrainDuration, "min-drain-duration", o.MinDrainDuration, "how long requests are taken after the first signal")
	fs.DurationVar(&o.DrainTimeout, "drain-timeout", o.DrainTimeout, "how long requests in flight may go on after that")
}

// Validate reports what is wrong with the options, naming flags.
func (o *Options) Validate() error {
	var errs []error
	if _, _, err := net.SplitHostPort(o.ProxyServer); err != nil {
		errs = append(errs, fmt.Errorf("--proxy-server %q must be host:port", o.ProxyServer))
	}
	for _, file := range []struct{ flag, value string }{
		{"proxy-ca-cert", o.ProxyCACert}, {"proxy-cert", o.ProxyCert}, {"proxy-key", o.ProxyKey},
		{"agent-ca-cert", o.AgentCACert}, {"server-cert", o.ServerCert}, {"server-key", o.ServerKey},
	} {
		if file.value == "" {
			errs = append(errs, fmt.Errorf("--%s must be the name of a PEM file", file.flag))
		}
	}
	for _, port := range []struct {
		flag  string
		value int
	}{{"server-port", o.ServerPort}, {"health-port", o.HealthPort}} {
		if port.value < 0 || port.value > 65535 {
			errs = append(errs, fmt.Errorf("--%s %d must be a port number from 0 to 65535", port.flag, port.value))
		}
	}
	for _, d := range []struct {
		flag  string
		value time.Duration
	}{{"min-drain-duration", o.MinDrainDuration}, {"drain-timeout", o.DrainTimeout}} {
		if d.value < 0 {
			errs = append(errs, fmt.Errorf("--%s %v must not be negative", d.flag, d.value))
		}
	}
	return errors.Join(errs...)
}

func (o *Options) hubConfig() (*rest.Config, error) {
	path := o.Kubeconfig
	if path == "" {
		path = os.Getenv(clientcmd.RecommendedConfigPathEnvVar)
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return nil, fmt.Errorf("loading the hub's kubeconfig %q: %w", path, err)
	}
	return config, nil
}

func address(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
