package lab

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// follower follows what is in a cluster, so that looking at it all the time costs the
// cluster nothing. Nobody may change what is in its stores.
type follower struct {
	reflectors []*cache.Reflector
}

// follow returns a store for the objects of a resource that selector selects. It tries
// again after half a second, since a scenario that stops a cluster's API server does not
// wait for more when it is back.
func (f *follower) follow(client rest.Interface, resource, selector string, object runtime.Object) cache.Store {
	store, silent := cache.NewStore(cache.MetaNamespaceKeyFunc), logr.Discard()
	listWatch := cache.NewFilteredListWatchFromClient(client, resource, "", func(options *metav1.ListOptions) { options.LabelSelector = selector })
	f.reflectors = append(f.reflectors, cache.NewReflectorWithOptions(listWatch, object, store, cache.ReflectorOptions{
		Logger:  &silent,
		Backoff: &wait.Backoff{Duration: 500 * time.Millisecond, Factor: 1, Steps: math.MaxInt32},
	}))
	return store
}

// run returns when ctx is done.
func (f *follower) run(ctx context.Context) {
	var running wait.Group
	for _, r := range f.reflectors {
		running.StartWithContext(ctx, r.RunWithContext)
	}
	running.Wait()
}

// filled reports whether everything was listed once.
func (f *follower) filled() bool {
	return !slices.ContainsFunc(f.reflectors, func(r *cache.Reflector) bool { return r.LastSyncResourceVersion() == "" })
}

// listed returns what a store holds, in the order of names.
func listed[T metav1.Object](store cache.Store) []T {
	var all []T
	for _, object := range store.List() {
		all = append(all, object.(T))
	}
	slices.SortFunc(all, func(a, b T) int {
		return strings.Compare(a.GetNamespace()+"/"+a.GetName(), b.GetNamespace()+"/"+b.GetName())
	})
	return all
}

// found returns the object of a store that has this name, or nil.
func found[T any](store cache.Store, namespace, name string) *T {
	object, exists, err := store.GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return nil
	}
	return object.(*T)
}

// podCache has what the addon's pods are made of.
type podCache struct {
	follower
	pods, services, secrets, configMaps cache.Store
}

func newPodCache(client kubernetes.Interface) *podCache {
	c, core := &podCache{}, client.CoreV1().RESTClient()
	c.pods = c.follow(core, "pods", podSelector, &corev1.Pod{})
	c.services = c.follow(core, "services", "", &corev1.Service{})
	c.secrets = c.follow(core, "secrets", "", &corev1.Secret{})
	c.configMaps = c.follow(core, "configmaps", "", &corev1.ConfigMap{})
	return c
}

// volumeSecret returns a Secret's files; none if it is not there and need not be.
func (c *podCache) volumeSecret(namespace, name string, optional *bool) (map[string][]byte, error) {
	secret := found[corev1.Secret](c.secrets, namespace, name)
	switch {
	case secret != nil:
		return secret.Data, nil
	case optional != nil && *optional:
		return nil, nil
	}
	return nil, fmt.Errorf("there is no Secret %s/%s", namespace, name)
}

// volumeConfigMap is volumeSecret for a ConfigMap.
func (c *podCache) volumeConfigMap(namespace, name string, optional *bool) (map[string][]byte, error) {
	configMap := found[corev1.ConfigMap](c.configMaps, namespace, name)
	switch {
	case configMap != nil:
		files := map[string][]byte{}
		for key, value := range configMap.Data {
			files[key] = []byte(value)
		}
		return files, nil
	case optional != nil && *optional:
		return nil, nil
	}
	return nil, fmt.Errorf("there is no ConfigMap %s/%s", namespace, name)
}
