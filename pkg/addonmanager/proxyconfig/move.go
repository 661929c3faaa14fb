package proxyconfig

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	// overlap is the minReadySeconds that keeps upstream's proxy servers beside
	// those of this release. It is no deadline: moveLimit is.
	overlap = 300
	// moveLimit is how long clusters may take to come to the proxy servers of this
	// release. Those that have come are out of upstream's reach then.
	moveLimit = time.Minute
	// moveCalm is how long after the arrival of the last cluster the others are not
	// waited for any more: they may be unreachable.
	moveCalm = 15 * time.Second
	// moveNext is how long clients wait for the proxy APIs of this release to replace
	// upstream's user servers, which can do nothing for them afterwards.
	moveNext = 20 * time.Second
	// moveCheck is how often to look.
	moveCheck = 500 * time.Millisecond
	// upstreamCommand is that of upstream's proxy servers.
	upstreamCommand = "/proxy-server"
)

// move is how far the takeover from upstream's proxy servers is. Its zero value is
// that there are none.
type move struct {
	// former is the pod-template-hash of upstream's pods; empty if there are none.
	former string
	// ready says that a proxy server of this release is.
	ready bool
	// arrived says that the clusters have come, so that proxy APIs may use the proxy
	// servers of this release.
	arrived bool
	// moved says that clients go to the proxy servers of this release.
	moved bool
}

// clients selects the pods that clients are led to. Upstream's serve upstream's
// agents, and only they do.
func (m move) clients() map[string]string {
	switch {
	case m.former == "":
		return selector()
	case m.moved:
		return ownSelector()
	}
	former := selector()
	former[appsv1.DefaultDeploymentUniqueLabelKey] = m.former
	return former
}

// agents selects the pods that agents are led to. Upstream's agents have their
// connections; agents that dial are of this release.
func (m move) agents() map[string]string {
	if m.former != "" && m.ready {
		return ownSelector()
	}
	return selector()
}

// minReadySeconds of the proxy servers' Deployment.
func (m move) minReadySeconds() int32 {
	if m.former != "" && !m.moved {
		return overlap
	}
	return 0
}

// Moving reports whether upstream's proxy servers still serve the clients of a
// configuration, which has its defaults.
func Moving(ctx context.Context, reader client.Reader, c *v1alpha1.ManagedProxyConfiguration) (bool, error) {
	var deployment appsv1.Deployment
	err := reader.Get(ctx, client.ObjectKey{Namespace: c.Spec.ProxyServer.Namespace, Name: c.Name}, &deployment)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading the proxy servers' Deployment: %w", err)
	}
	upstreams := slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		return slices.Equal(c.Command, []string{upstreamCommand})
	})
	return upstreams || deployment.Spec.MinReadySeconds == overlap, nil
}

// findMove finds out how far the takeover is. It keeps no state: the pods show whether
// the takeover continues, and the Service of the clients whether they were moved.
func (r *Reconciler) findMove(ctx context.Context, c *v1alpha1.ManagedProxyConfiguration) (move, error) {
	if r.Live == nil {
		return move{}, nil
	}
	namespace := client.InNamespace(c.Spec.ProxyServer.Namespace)
	var former, own corev1.PodList
	if err := r.Live.List(ctx, &former, namespace, client.MatchingLabelsSelector{Selector: formerSelector()}); err != nil {
		return move{}, fmt.Errorf("looking for upstream's proxy servers: %w", err)
	}
	var m move
	for _, pod := range former.Items {
		if pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			m.former = pod.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
		}
	}
	if m.former == "" {
		return move{}, nil
	}
	if err := r.Live.List(ctx, &own, namespace, client.MatchingLabels(ownSelector())); err != nil {
		return move{}, fmt.Errorf("looking for proxy servers: %w", err)
	}
	since := readySince(own.Items)
	m.ready = !since.IsZero()
	led, err := r.led(ctx, c)
	switch {
	case err != nil:
		return move{}, err
	case led:
		m.arrived, m.moved = true, true
	case m.ready:
		err = r.advance(ctx, c, &m, since)
	}
	return m, err
}

// led reports whether clients are led to the proxy servers of this release.
func (r *Reconciler) led(ctx context.Context, c *v1alpha1.ManagedProxyConfiguration) (bool, error) {
	var service corev1.Service
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: c.Spec.ProxyServer.Namespace, Name: c.Spec.ProxyServer.InClusterServiceName}, &service); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading the clients' Service: %w", err)
	}
	_, led := service.Spec.Selector[addonLabel]
	return led, nil
}

// advance decides whether it is time for the proxy APIs, and then for clients. The
// Service for proxy APIs shows since when they were.
func (r *Reconciler) advance(ctx context.Context, c *v1alpha1.ManagedProxyConfiguration, m *move, since time.Time) error {
	var next corev1.Service
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: c.Spec.ProxyServer.Namespace, Name: c.Spec.ProxyServer.InClusterServiceName + nextSuffix}, &next)
	if err == nil {
		m.arrived = true
		left, err := r.userServers(ctx, c)
		if err != nil {
			return err
		}
		m.moved = left == 0 || r.now().Sub(next.CreationTimestamp.Time) > moveNext
		if m.moved {
			r.event(c, "TakenOver", "Clients now reach the proxy servers of this release; %d of upstream's user servers are left", left)
		}
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the proxy APIs' Service: %w", err)
	}
	missing, last, over, err := r.missing(ctx, c, since)
	if err != nil || !over {
		return err
	}
	m.arrived = true
	// Where agents come by the same address as clients, they come with the clients.
	m.moved = len(missing) > 0 && last.IsZero()
	r.event(c, "Arrived", "Proxy APIs now use the proxy servers of this release; %d clusters have no agent of it there yet %s", len(missing), missing)
	return nil
}

// userServers counts those of upstream, which use upstream's proxy servers. Their labels
// are the proxy APIs'; their containers have a command.
func (r *Reconciler) userServers(ctx context.Context, c *v1alpha1.ManagedProxyConfiguration) (n int, err error) {
	var pods corev1.PodList
	if err := r.Live.List(ctx, &pods, client.InNamespace(c.Spec.ProxyServer.Namespace), client.MatchingLabels{"component": identity.ProxyAPIService}); err != nil {
		return 0, fmt.Errorf("looking for upstream's user servers: %w", err)
	}
	for _, pod := range pods.Items {
		upstreams := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return len(c.Command) > 0 })
		if upstreams && pod.DeletionTimestamp == nil {
			n++
		}
	}
	return n, nil
}

// missing returns the clusters that have not come, when the last one came, and whether
// the wait for the others is over.
func (r *Reconciler) missing(ctx context.Context, c *v1alpha1.ManagedProxyConfiguration, since time.Time) (missing []string, last time.Time, over bool, err error) {
	late := r.now().Sub(since) > moveLimit
	if r.Arrivals == nil {
		return nil, last, late, nil
	}
	params, err := r.certificates(ctx, c)
	if err != nil {
		return nil, last, false, err
	}
	check, err := certificates.CurrentCheck(ctx, r.Client, params, "move")
	if err != nil {
		return nil, last, late, client.IgnoreNotFound(err)
	}
	missing, last, err = r.Arrivals.Missing(ctx, check)
	if err != nil {
		return nil, last, late, nil // the next time; what it needs may not be there yet
	}
	calm := !last.IsZero() && r.now().Sub(last) > moveCalm
	return missing, last, len(missing) == 0 || calm || late, nil
}

// formerSelector selects upstream's proxy servers.
func formerSelector() labels.Selector {
	s := labels.SelectorFromSet(selector())
	none, err := labels.NewRequirement(addonLabel, selection.DoesNotExist, nil)
	if err != nil {
		panic(err) // a constant
	}
	return s.Add(*none)
}

// readySince is when the first of the pods that are ready became so, and zero if
// none is. Pods that drain do not count: a rollback leaves them behind.
func readySince(pods []corev1.Pod) (since time.Time) {
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil {
			continue
		}
		for _, condition := range pod.Status.Conditions {
			if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue && (since.IsZero() || condition.LastTransitionTime.Time.Before(since)) {
				since = condition.LastTransitionTime.Time
			}
		}
	}
	return since
}

// tellIgnored reports in a condition and an event which settings this release ignores.
func (r *Reconciler) tellIgnored(stored *v1alpha1.ManagedProxyConfiguration, set func(kind string, ok bool, reason, message string)) {
	ignored := IgnoredFlags(stored)
	if ignored == "" {
		set(v1alpha1.ConditionTypeConfigurationIgnored, false, "NothingIgnored", "every setting has an effect")
		return
	}
	message := "this release ignores flags, remove them: " + ignored
	set(v1alpha1.ConditionTypeConfigurationIgnored, true, "Ignored", message)
	if before := apimeta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionTypeConfigurationIgnored); before == nil || before.Message != message {
		r.event(stored, "Ignored", "%s", message)
	}
}
