package lab

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/client-go/rest"
)

// ClusterStatus is a line about a cluster.
type ClusterStatus struct{ Name, Ready, Kubeconfig string }

// Status says of each cluster whether its kube-apiserver is ready, or why not.
func (l *Lab) Status() []ClusterStatus {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var out []ClusterStatus
	for _, name := range l.Names() {
		c := l.Managed[name]
		if name == hubName {
			c = l.Hub
		}
		ready := "yes"
		client, err := rest.HTTPClientFor(c.config)
		if err == nil {
			err = getOK(ctx, client, c.config.Host+"/readyz")
		}
		if err != nil {
			ready = err.Error()
		}
		out = append(out, ClusterStatus{Name: name, Ready: ready, Kubeconfig: c.KubeconfigPath})
	}
	return out
}

// Names are those of the clusters, the hub first.
func (l *Lab) Names() []string {
	return append([]string{hubName}, slices.Sorted(maps.Keys(l.Managed))...)
}

// Service is a port of a Service ("cluster/namespace/name:port") and where it
// is reachable on this machine.
type Service struct{ Name, Address string }

// Services are those whose pods the lab runs.
func (l *Lab) Services() []Service {
	table := readServiceTable(l.dir)
	var out []Service
	for _, name := range slices.Sorted(maps.Keys(table)) {
		out = append(out, Service{Name: name, Address: table[name]})
	}
	return out
}
