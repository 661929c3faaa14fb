package proxyconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlbuilder "sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
)

// SetupWithManager starts the reconciler with the manager.
func (r *Reconciler) SetupWithManager(mgr ctrl.Manager) error {
	// Secrets of CAs have no owner, nor has the proxy API's certificate if a user brings it; a
	// change of one concerns all configurations that use it.
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
		var list v1alpha1.ManagedProxyConfigurationList
		if err := r.Client.List(ctx, &list); err != nil {
			return nil
		}
		var requests []reconcile.Request
		for _, item := range list.Items {
			if object.GetName() == certificates.UserServingSecret || slices.Contains(r.caSecrets(&item), object.GetName()) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&item)})
			}
		}
		return requests
	})
	byOwner := handler.EnqueueRequestForOwner(mgr.GetScheme(), mgr.GetRESTMapper(), &v1alpha1.ManagedProxyConfiguration{})
	builder := ctrl.NewControllerManagedBy(mgr).For(&v1alpha1.ManagedProxyConfiguration{}, ctrlbuilder.WithPredicates(asked)).Named("managedproxyconfiguration")
	for _, owned := range []client.Object{&appsv1.Deployment{}, &corev1.Service{}, &corev1.ConfigMap{}, &corev1.Secret{}, &corev1.ServiceAccount{}, &policyv1.PodDisruptionBudget{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		builder = builder.Watches(owned, byOwner)
	}
	return builder.Watches(&corev1.Secret{}, all).
		Watches(&addonv1alpha1.ManagedClusterAddOn{}, handler.EnqueueRequestsFromMapFunc(r.portForwarding), ctrlbuilder.WithPredicates(comesOrGoes)).
		Complete(r)
}

// asked lets events of configurations through that ask for something. The status does not: the
// reconciler writes into it how far a rotation is, and would look again at once each time.
var asked = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{})

// comesOrGoes lets events of addons through that change which agents may port-forward.
var comesOrGoes = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	before, ok1 := e.ObjectOld.(*addonv1alpha1.ManagedClusterAddOn)
	after, ok2 := e.ObjectNew.(*addonv1alpha1.ManagedClusterAddOn)
	return ok1 && ok2 && (before.DeletionTimestamp.IsZero() != after.DeletionTimestamp.IsZero() || before.Status.KubeClientDriver != after.Status.KubeClientDriver)
}}

// portForwarding are the configurations in whose mode agents port-forward.
func (r *Reconciler) portForwarding(ctx context.Context, _ client.Object) (requests []reconcile.Request) {
	var list v1alpha1.ManagedProxyConfigurationList
	if err := r.Client.List(ctx, &list); err != nil {
		return nil // the cache is not filled yet; every configuration is reconciled after that anyway
	}
	for _, item := range list.Items {
		if c, err := Normalize(&item); err == nil && c.Spec.ProxyServer.Entrypoint.Type == v1alpha1.EntryPointTypePortForward {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&item)})
		}
	}
	return requests
}

// Reconcile applies one configuration and reports in its status how far it got.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var stored v1alpha1.ManagedProxyConfiguration
	if err := r.Client.Get(ctx, request.NamespacedName, &stored); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if stored.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	status := stored.Status.DeepCopy()
	status.LastObservedGeneration = stored.Generation
	result, err := r.reconcile(ctx, &stored, status)
	if err := r.writeStatus(ctx, &stored, status); err != nil {
		return ctrl.Result{}, err
	}
	return result, err
}

func (r *Reconciler) reconcile(ctx context.Context, stored *v1alpha1.ManagedProxyConfiguration, status *v1alpha1.ManagedProxyConfigurationStatus) (ctrl.Result, error) {
	set := func(kind string, ok bool, reason, message string) {
		value := metav1.ConditionFalse
		if ok {
			value = metav1.ConditionTrue
		}
		apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: reason, Message: message, ObservedGeneration: stored.Generation,
		})
	}
	c, err := r.Options.normalize(stored)
	if err != nil {
		// Trying again would not change it; the next change of the object will.
		set(v1alpha1.ConditionTypeConfigurationValid, false, "InvalidConfiguration", err.Error())
		return ctrl.Result{}, nil
	}
	set(v1alpha1.ConditionTypeConfigurationValid, true, "Valid", "the configuration is valid")
	r.tellIgnored(stored, set)

	var clusters []Cluster
	if r.Clusters != nil && c.Spec.ProxyServer.Entrypoint.Type == v1alpha1.EntryPointTypePortForward {
		if clusters, err = r.Clusters(ctx); err != nil {
			return ctrl.Result{}, fmt.Errorf("listing the clusters whose agents may port-forward: %w", err)
		}
	}
	move, err := r.findMove(ctx, c)
	if err != nil {
		return ctrl.Result{}, err
	}
	apply, remove := r.Options.desired(c, clusters, move)
	// The load balancer comes first: certificates hold its address.
	if err := r.apply(ctx, c, apply, remove); err != nil {
		set(v1alpha1.ConditionTypeProxyServerDeployed, false, "NotYetDeployed", err.Error())
		return ctrl.Result{}, err
	}
	params, err := r.certificates(ctx, c)
	if err != nil {
		return ctrl.Result{}, err
	}
	issued, err := certificates.Ensure(ctx, r.Client, params, r.now())
	r.report(c, params, issued, err, set)
	deployed, message, deployErr := r.deployed(ctx, c)
	if deployErr != nil {
		return ctrl.Result{}, errors.Join(err, deployErr)
	}
	reason := "SuccessfullyDeployed"
	if !deployed {
		reason = "NotYetDeployed"
	}
	set(v1alpha1.ConditionTypeProxyServerDeployed, deployed, reason, message)
	if err != nil {
		return ctrl.Result{}, err
	}
	if move.former != "" {
		return ctrl.Result{RequeueAfter: moveCheck}, nil
	}
	return ctrl.Result{RequeueAfter: issued.RenewAfter}, nil
}

// normalize is Normalize with what depends on where this reconciler works.
func (o Options) normalize(stored *v1alpha1.ManagedProxyConfiguration) (*v1alpha1.ManagedProxyConfiguration, error) {
	c, err := Normalize(stored)
	if err != nil {
		return nil, err
	}
	if c.Spec.ProxyServer.Namespace != o.Namespace {
		return nil, fmt.Errorf("spec.proxyServer.namespace is %q: it must be %q, the addon manager's own namespace, where its rights end", c.Spec.ProxyServer.Namespace, o.Namespace)
	}
	if err := checkSecretNames(c, o.SignerName); err != nil {
		return nil, err
	}
	return c, o.checkStart(c)
}

// checkStart has the processes' own checks look at the values of arguments. Package agentaddon checks
// those that need others of a cluster's agent: an AddOnDeploymentConfig may complete what it is told
// of an identity provider, and --enable-port-forward-proxy needs its place on the hub.
func (o Options) checkStart(c *v1alpha1.ManagedProxyConfiguration) error {
	if o.CheckArgs == nil {
		return nil
	}
	if err := o.CheckArgs(o.arguments(c)); err != nil {
		return fmt.Errorf("spec.proxyServer.additionalArgs: the proxy-server does not start with them: %w", err)
	}
	agents := slices.Concat([]string{"proxy-agent"}, c.Spec.ProxyAgent.AdditionalServiceProxyArgs, c.Spec.ProxyAgent.AdditionalArgs)
	agents = slices.DeleteFunc(agents, func(arg string) bool {
		return strings.HasPrefix(arg, "--oidc-") || strings.HasPrefix(arg, "--enable-port-forward-proxy=")
	})
	if err := o.CheckArgs(agents); err != nil {
		return fmt.Errorf("spec.proxyAgent.additionalArgs and additionalServiceProxyArgs: the proxy-agent does not start with them: %w", err)
	}
	return nil
}

func (r *Reconciler) deployed(ctx context.Context, c *v1alpha1.ManagedProxyConfiguration) (bool, string, error) {
	var deployment appsv1.Deployment
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: c.Spec.ProxyServer.Namespace, Name: c.Name}, &deployment); err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.setServers(c.Spec.ProxyServer.Replicas, 0)
			return false, "the Deployment is not there yet", nil // the cache is behind
		}
		return false, "", err
	}
	status := deployment.Status
	r.Metrics.setServers(c.Spec.ProxyServer.Replicas, status.AvailableReplicas)
	message := fmt.Sprintf("Replicas: %d, available: %d", c.Spec.ProxyServer.Replicas, status.AvailableReplicas)
	return status.AvailableReplicas > 0, message, nil
}

func (r *Reconciler) writeStatus(ctx context.Context, stored *v1alpha1.ManagedProxyConfiguration, status *v1alpha1.ManagedProxyConfigurationStatus) error {
	if equality.Semantic.DeepEqual(stored.Status, *status) {
		return nil
	}
	changed := stored.DeepCopy()
	changed.Status = *status
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed, client.MergeFrom(stored))); err != nil {
		return fmt.Errorf("writing the status of %q: %w", stored.Name, err)
	}
	return nil
}
