package addonmanager

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	addonv1alpha1 "open-cluster-management.io/api/addon/v1alpha1"
	addonclient "open-cluster-management.io/api/client/addon/clientset/versioned"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// conditionVariablesIgnored is True on a ManagedClusterAddOn whose
// AddOnDeploymentConfig has variables of upstream that this release ignores.
const conditionVariablesIgnored = "VariablesIgnored"

// notices reports in a condition and an event of each addon which customized variables
// are ignored.
type notices struct {
	addons addonclient.Interface
	events events.EventRecorder
}

// tell updates the condition if it is outdated. The agent's manifests do not wait for
// that: an error is logged, and tell tries again the next time they are made.
func (n *notices) tell(ctx context.Context, addon *addonv1alpha1.ManagedClusterAddOn, variables []string) {
	if err := n.write(ctx, addon, variables); err != nil {
		klog.FromContext(ctx).Error(err, "Telling which customized variables are ignored; will try again", "cluster", addon.Namespace)
	}
}

func (n *notices) write(ctx context.Context, addon *addonv1alpha1.ManagedClusterAddOn, variables []string) error {
	changed := addon.DeepCopy()
	if len(variables) == 0 {
		if !apimeta.RemoveStatusCondition(&changed.Status.Conditions, conditionVariablesIgnored) {
			return nil
		}
		return n.patch(ctx, addon, changed)
	}
	names := slices.Compact(slices.Sorted(slices.Values(variables)))
	message := "this release ignores the customized variables " + strings.Join(names, ", ") + " of the AddOnDeploymentConfig; remove them"
	if !apimeta.SetStatusCondition(&changed.Status.Conditions, metav1.Condition{
		Type: conditionVariablesIgnored, Status: metav1.ConditionTrue, Reason: "Ignored", Message: message,
	}) {
		return nil
	}
	if err := n.patch(ctx, addon, changed); err != nil {
		return err
	}
	n.events.Eventf(changed, nil, corev1.EventTypeNormal, "VariablesIgnored", "Render", "%s", message)
	return nil
}

func (n *notices) patch(ctx context.Context, before, after *addonv1alpha1.ManagedClusterAddOn) error {
	// Conditions are replaced as a whole: not those that have changed since.
	patch, err := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}).Data(after)
	if err != nil {
		return fmt.Errorf("preparing condition %s: %w", conditionVariablesIgnored, err)
	}
	if _, err := n.addons.AddonV1alpha1().ManagedClusterAddOns(before.Namespace).Patch(ctx, before.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("writing condition %s of addon %q in namespace %q: %w", conditionVariablesIgnored, before.Name, before.Namespace, err)
	}
	return nil
}
