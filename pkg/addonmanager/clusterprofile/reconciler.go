package clusterprofile

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	clusterv1 "open-cluster-management.io/api/cluster/v1"
	"sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/ownstatus"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

const (
	// Provider is the name of the access provider, as in OCM's cluster-proxy.
	Provider = "open-cluster-management"
	// execExtension is what an exec credential plugin is told: which cluster.
	execExtension = "client.authentication.k8s.io/exec"
)

// Reconciler reconciles the ClusterProfiles that OCM makes.
type Reconciler struct {
	// Client reads Secrets and addons, and writes status.
	Client client.Client
	// Profiles reads ClusterProfiles; SetupWithManager sets it.
	Profiles client.Reader
	// Namespace is that of the proxy API.
	Namespace string
	// Server is the address of the proxy API without a cluster, such as
	// https://proxy.example.com; empty means its Service, which only pods on the
	// hub can reach.
	Server string
}

// SetupWithManager starts the reconciler with the manager, which may be running
// already. The hub must serve ClusterProfiles. They have a cache of their own,
// because one for a kind that may be missing cannot be part of the manager's.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	profiles, err := cache.New(mgr.GetConfig(), cache.Options{
		Scheme: mgr.GetScheme(), HTTPClient: mgr.GetHTTPClient(), Mapper: mgr.GetRESTMapper(),
		DefaultLabelSelector: labels.SelectorFromSet(labels.Set{v1alpha1.LabelClusterManagerKey: Provider}),
	})
	if err != nil {
		return fmt.Errorf("preparing the cache of cluster profiles: %w", err)
	}
	r.Profiles = profiles
	if err := mgr.Add(profiles); err != nil {
		return fmt.Errorf("starting the cache of cluster profiles: %w", err)
	}
	// A bundle concerns all profiles, and an addon those of its cluster.
	bundles := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		if name := object.GetName(); name != certificates.HubBundleSecret && name != certificates.UserServingSecret {
			return nil
		}
		return r.requests(ctx)
	})
	addons := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		if object.GetName() != identity.AddonName {
			return nil
		}
		return r.requests(ctx, client.MatchingLabels{clusterv1.ClusterNameLabelKey: object.GetNamespace()})
	})
	return ctrl.NewControllerManagedBy(mgr).Named("clusterprofile").
		WatchesRawSource(source.Kind[client.Object](profiles, &v1alpha1.ClusterProfile{}, &handler.EnqueueRequestForObject{})).
		Watches(&corev1.Secret{}, bundles).
		Watches(&addonv1alpha1.ManagedClusterAddOn{}, addons).
		Complete(r)
}

func (r *Reconciler) requests(ctx context.Context, selector ...client.ListOption) []reconcile.Request {
	var profiles v1alpha1.ClusterProfileList
	if err := r.Profiles.List(ctx, &profiles, selector...); err != nil {
		return nil // the cache is not filled yet; every profile is looked at after that anyway
	}
	requests := make([]reconcile.Request, len(profiles.Items))
	for i := range profiles.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&profiles.Items[i])
	}
	return requests
}

// Reconcile publishes the access provider of one ClusterProfile, or takes it
// away.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var profile v1alpha1.ClusterProfile
	if err := r.Profiles.Get(ctx, request.NamespacedName, &profile); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	cluster := profile.Labels[clusterv1.ClusterNameLabelKey]
	if profile.Labels[v1alpha1.LabelClusterManagerKey] != Provider || identity.ValidateCluster(cluster) != nil {
		return ctrl.Result{}, nil // another controller's
	}
	providers, err := r.providers(ctx, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	return ctrl.Result{}, r.apply(ctx, &profile, providers)
}

// providers are ours for a cluster: one, or none while it has no addon.
func (r *Reconciler) providers(ctx context.Context, cluster string) ([]v1alpha1.AccessProvider, error) {
	var addon addonv1alpha1.ManagedClusterAddOn
	err := r.Client.Get(ctx, client.ObjectKey{Namespace: cluster, Name: identity.AddonName}, &addon)
	if apierrors.IsNotFound(err) || err == nil && addon.DeletionTimestamp != nil {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the addon of cluster %q: %w", cluster, err)
	}
	bundle, err := certificates.Store{Client: r.Client, BundleNamespace: r.Namespace}.UserServingBundle(ctx)
	if err != nil {
		return nil, err
	}
	extension, err := json.Marshal(map[string]string{"clusterName": cluster})
	if err != nil {
		return nil, err
	}
	server := strings.TrimSuffix(r.Server, "/")
	if server == "" {
		server = "https://" + identity.ProxyAPIService + "." + r.Namespace + ":9092"
	}
	return []v1alpha1.AccessProvider{{Name: Provider, Cluster: clientcmdv1.Cluster{
		Server: server + "/" + cluster, CertificateAuthorityData: bundle,
		Extensions: []clientcmdv1.NamedExtension{{Name: execExtension, Extension: runtime.RawExtension{Raw: extension}}},
	}}}, nil
}

// apply owns the given providers and nothing else of a profile.
func (r *Reconciler) apply(ctx context.Context, profile *v1alpha1.ClusterProfile, providers []v1alpha1.AccessProvider) error {
	status := struct {
		AccessProviders []v1alpha1.AccessProvider `json:"accessProviders,omitempty"`
	}{providers}
	return ownstatus.Apply(ctx, r.Client, v1alpha1.GroupVersion.WithKind(v1alpha1.Kind), client.ObjectKeyFromObject(profile), &status)
}
