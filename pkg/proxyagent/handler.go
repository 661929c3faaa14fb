package proxyagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/filewatch"
	"open-cluster-management.io/cluster-proxy/pkg/pki"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/apihandler"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/ownerpolicy"
	"open-cluster-management.io/cluster-proxy/pkg/proxyagent/policy"
)

// apiServerAddress is the host:port of the kube-apiserver.
func apiServerAddress(config *rest.Config) (string, error) {
	base, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return "", fmt.Errorf("parsing the address of the kube-apiserver %q: %w", config.Host, err)
	}
	if base.Port() != "" {
		return base.Host, nil
	}
	return net.JoinHostPort(base.Hostname(), defaultPort(base)), nil
}

func defaultPort(u *url.URL) string {
	if u.Scheme == "http" {
		return "80"
	}
	return "443"
}

// capped refuses new end-to-end connections to the kube-apiserver, whose requests the
// agent cannot see, as soon as the owner caps anything. The handler still accepts
// connections, since it checks each request.
func capped(destinations policy.Policy, owner func() (ownerpolicy.Policy, error)) decision {
	return func(network, address string) (policy.Target, error) {
		target, err := destinations.Target(network, address)
		if err != nil || target.Handler {
			return target, err
		}
		if caps, err := owner(); err != nil || caps.Caps() {
			return policy.Target{}, &policy.Denied{Network: network, Address: address, Reason: "owner"}
		}
		return target, nil
	}
}

// exposedInterval is how often the list is read again (package filewatch).
const exposedInterval = 3 * time.Second

// exposedList is the list of exposed Services in a folder, which is a mounted
// ConfigMap. It is empty until read has succeeded.
type exposedList struct {
	dir     string
	invalid prometheus.Gauge
	current atomic.Pointer[agentapi.ExposedServices]
}

func (e *exposedList) get() agentapi.ExposedServices {
	if list := e.current.Load(); list != nil {
		return *list
	}
	return nil
}

// run reads the list again and again until ctx is done. A list that cannot be
// read leaves the last good one in force.
func (e *exposedList) run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	return filewatch.Loop{
		Interval: exposedInterval,
		Load: func() (changed bool, err error) {
			before := fmt.Sprint(e.get())
			err = e.read()
			e.invalid.Set(oneIf(err != nil))
			return fmt.Sprint(e.get()) != before, err
		},
		Changed: func() { logger.Info("Read the list of exposed Services", "services", len(e.get())) },
		Failed: func(err error) {
			logger.Error(err, "Failed to read all of the exposed Services: a list that cannot be read leaves the one before it in force")
		},
	}.Run(ctx)
}

// read takes every file of the folder for a key of the ConfigMap. No folder is
// an empty list. The error may be of entries that are left out.
func (e *exposedList) read() error {
	data := map[string]string{}
	entries, err := os.ReadDir(e.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("reading the exposed Services: %w", err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), ".") || entry.IsDir() { // the kubelet's own
			continue
		}
		content, err := os.ReadFile(filepath.Join(e.dir, entry.Name()))
		if err != nil {
			return fmt.Errorf("reading the exposed Services: %w", err)
		}
		data[entry.Name()] = string(content)
	}
	list, leftOut, err := agentapi.ParseExposedServices(data)
	if err != nil {
		return err
	}
	e.current.Store(&list)
	return leftOut
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// services are the Services that the handler forwards to, and what has to run
// for that.
func services(o *Options, cluster *rest.Config, invalid prometheus.Gauge) (_ apihandler.Services, run []func(context.Context) error, err error) {
	services := apihandler.Services{Roots: pki.NewReloader(pki.Files{
		CA: cluster.CAFile, CAData: cluster.CAData, MoreCA: o.AdditionalServiceCA, TLSProfile: o.TLSProfile,
	})}
	if err := services.Roots.Load(); err != nil {
		return services, nil, fmt.Errorf("loading the CAs of Services: %w", err)
	}
	run = append(run, services.Roots.Run)
	if o.ExposedServices != "" {
		list := &exposedList{dir: o.ExposedServices, invalid: invalid}
		services.Exposed = list.get
		run = append(run, list.run)
	}
	if o.DNSServer != "" {
		services.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, o.DNSServer)
		}}
	}
	return services, run, nil
}
