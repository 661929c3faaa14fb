// Package ownstatus writes the status of objects of which the addon manager owns the
// status, or a part of it, and nothing else: by server-side apply, so that what others
// write there stays.
package ownstatus

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Apply applies the status of an object: status points to a struct with the fields that
// are the addon manager's. An object that is gone is no error.
func Apply(ctx context.Context, c client.Client, of schema.GroupVersionKind, key client.ObjectKey, status any) error {
	name := strings.TrimPrefix(key.String(), "/") // one without a namespace has only that
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return fmt.Errorf("converting the status of %s %q: %w", of.Kind, name, err)
	}
	object := &unstructured.Unstructured{Object: map[string]any{"status": content}}
	object.SetGroupVersionKind(of)
	object.SetNamespace(key.Namespace)
	object.SetName(key.Name)
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner(identity.AddonManager), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("applying the status of %s %q: %w", of.Kind, name, err)
	}
	return nil
}
