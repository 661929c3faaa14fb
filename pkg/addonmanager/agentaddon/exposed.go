package agentaddon

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	clusterv1beta2 "open-cluster-management.io/api/cluster/v1beta2"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

// exposedServices returns the list for agents. Without a ConfigMap it is empty. While
// the ConfigMap does not parse, the last good list stays in force: the one in memory,
// or, after a restart, the one in the manifests, which do not change after an error.
func (a *Addon) exposedServices(ctx context.Context) (agentapi.ExposedServices, error) {
	if a.ExposedServices.Name == "" {
		return nil, nil
	}
	var stored corev1.ConfigMap
	if err := a.Reader.Get(ctx, a.ExposedServices, &stored); err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading ConfigMap %q with the exposed Services: %w", a.ExposedServices, err)
	}
	list, leftOut, err := agentapi.ParseExposedServices(stored.Data)
	a.exposed.mu.Lock()
	defer a.exposed.mu.Unlock()
	if err == nil {
		a.exposed.last = &list
	}
	wrong := errors.Join(leftOut, err)
	if wrong == nil {
		a.Metrics.setExposedServicesInvalid(0)
		a.exposed.said = ""
		return list, nil
	}
	a.Metrics.setExposedServicesInvalid(1)
	wrong = fmt.Errorf("ConfigMap %q: %w", a.ExposedServices, wrong)
	if a.exposed.said != wrong.Error() {
		klog.FromContext(ctx).Error(wrong, "Failed to read all of the exposed Services: a list that cannot be read leaves the one before it in force")
		a.exposed.said = wrong.Error()
	}
	if a.exposed.last == nil {
		return nil, wrong
	}
	return *a.exposed.last, nil
}

// exposeServices puts into the values what the agent's handler needs for
// Services of its cluster.
func (a *Addon) exposeServices(ctx context.Context, v *values, cluster *clusterv1.ManagedCluster, additionalCA string) error {
	list, err := a.exposedServices(ctx)
	if err != nil {
		return err
	}
	v.ExposedServices = list.For(cluster.Name, cluster.Labels[clusterv1beta2.ClusterSetLabel]).Data()[agentapi.ExposedServicesKey]
	v.AdditionalServiceCA = additionalCA
	if additionalCA != "" {
		v.Args = append(v.Args, "--additional-service-ca=/additional-service-ca/service-ca.crt")
	}
	return nil
}
