package e2e

import (
	"context"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// withRuntime is a step of controller-runtime's client.
func withRuntime(name string, do func(ctx context.Context, c client.WithWatch, v clientValues) (string, error), want ...string) clientStep {
	return clientStep{does: name, want: want, run: func(ctx context.Context, way clientWay, v clientValues) (string, error) {
		c, err := client.NewWithWatch(runtimeConfig(way), client.Options{})
		if err != nil {
			return "", err
		}
		return do(ctx, c, v)
	}}
}

// runtimeConfig speaks HTTP/1.1 to an HTTPS proxy, as DISABLE_HTTP2 has other programs do.
func runtimeConfig(way clientWay) *rest.Config {
	cfg := rest.CopyConfig(way.cfg)
	if cfg.Proxy != nil {
		cfg.NextProtos = []string{"http/1.1"}
	}
	return cfg
}

// controllerRuntime does with its client and its cache what controllers do.
func controllerRuntime() clientProgram {
	settings := func(v clientValues) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings", Namespace: v.ns}, Data: map[string]string{"colour": "green"}}
	}
	return clientProgram{name: "controller-runtime", version: "v0.25.2", steps: []clientStep{
		withRuntime("List", func(ctx context.Context, c client.WithWatch, v clientValues) (string, error) {
			var pods corev1.PodList
			err := c.List(ctx, &pods, client.InNamespace(v.home), client.MatchingLabels{"app": "web"})
			return fmt.Sprintf("%d pods", len(pods.Items)), err
		}, "pods"),
		withRuntime("Get", func(ctx context.Context, c client.WithWatch, v clientValues) (string, error) {
			var web appsv1.Deployment
			err := c.Get(ctx, client.ObjectKey{Namespace: v.home, Name: v.web}, &web)
			return web.Spec.Template.Spec.Containers[0].Image, err
		}, "lab.local/web"),
		withRuntime("Create", func(ctx context.Context, c client.WithWatch, v clientValues) (string, error) {
			return "", c.Create(ctx, settings(v))
		}),
		withRuntime("Update on conflict", func(ctx context.Context, c client.WithWatch, v clientValues) (string, error) {
			now := settings(v)
			err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
				if err := c.Get(ctx, client.ObjectKeyFromObject(settings(v)), now); err != nil {
					return err
				}
				now.Data["colour"] = "red"
				return c.Update(ctx, now)
			})
			return now.Data["colour"], err
		}, "red"),
		withRuntime("Patch, a merge", func(ctx context.Context, c client.WithWatch, v clientValues) (string, error) {
			now := settings(v)
			changed := now.DeepCopy()
			changed.Data["colour"] = "blue"
			err := c.Patch(ctx, changed, client.MergeFrom(now))
			return changed.Data["colour"], err
		}, "blue"),
		withRuntime("Watch", func(ctx context.Context, c client.WithWatch, v clientValues) (string, error) {
			events, err := c.Watch(ctx, &corev1.ConfigMapList{}, client.InNamespace(v.ns), client.MatchingFields{"metadata.name": "settings"})
			if err != nil {
				return "", err
			}
			defer events.Stop()
			event := <-events.ResultChan()
			return string(event.Type), nil
		}, "ADDED"),
		{does: "a cache of one namespace", want: []string{"settings"}, run: func(ctx context.Context, way clientWay, v clientValues) (string, error) {
			return cached(ctx, way, v.ns)
		}},
		withRuntime("Delete", func(ctx context.Context, c client.WithWatch, v clientValues) (string, error) {
			return "", c.Delete(ctx, settings(v))
		}),
	}}
}

// cached lists the ConfigMaps of a namespace from a cache.
func cached(ctx context.Context, way clientWay, namespace string) (string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c, err := cache.New(runtimeConfig(way), cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}})
	if err != nil {
		return "", err
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Start(ctx) }()
	defer func() { cancel(); <-ended }()
	var list corev1.ConfigMapList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return "", err
	}
	var names []string
	for _, item := range list.Items {
		names = append(names, item.Name)
	}
	return strings.Join(names, " "), nil
}
