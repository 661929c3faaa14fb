package proxyagent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/apiserver-network-proxy/pkg/agent"

	"open-cluster-management.io/cluster-proxy/pkg/flags"
)

const leaseResync = 30 * time.Second

// leaseCounter counts proxy servers by their Leases, as konnectivity's agent
// does with --count-server-leases. It is nil without that flag.
func (a *Agent) leaseCounter(serving context.Context) (agent.ServerCounter, error) {
	k := a.options.Konnectivity
	if !k.CountServerLeases {
		return nil, nil
	}
	config, err := flags.RESTConfig("kubeconfig", k.KubeconfigPath)
	if err != nil {
		return nil, err
	}
	config.ContentType = k.APIContentType
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("preparing a client to count proxy servers: %w", err)
	}
	selector, err := labels.Parse(k.LeaseLabel)
	if err != nil {
		return nil, fmt.Errorf("parsing --lease-label %q: %w", k.LeaseLabel, err)
	}
	informer := agent.NewLeaseInformerWithMetrics(client, k.LeaseNamespace, leaseResync)
	go informer.Run(serving.Done())
	if !cache.WaitForCacheSync(serving.Done(), informer.HasSynced) {
		return nil, errors.New("counting proxy servers by their Leases: stopped before the first list")
	}
	return agent.NewServerLeaseCounter(clock.RealClock{}, coordinationlisters.NewLeaseLister(informer.GetIndexer()), selector), nil
}
