package suite

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

// FleetIndex is the kind of the fleet index's pods, which the hub has while fleetIndex.enabled is true.
func (s *Suite) FleetIndex() Kind {
	return Kind{"fleet index", s.Hub, s.Namespace, "cluster-proxy-fleet-index"}
}

// IndexedKinds are those of the chart's value fleetIndex.resources, as a cluster serves them.
func (s *Suite) IndexedKinds(cluster string) (kinds []metav1.APIResource, _ error) {
	text, err := os.ReadFile(filepath.Join(s.options.Root, "charts/cluster-proxy/values.yaml"))
	if err != nil {
		return nil, err
	}
	var values struct {
		FleetIndex struct {
			Resources []string `json:"resources"`
		} `json:"fleetIndex"`
	}
	if err := yaml.Unmarshal(text, &values); err != nil {
		return nil, err
	}
	client, err := discovery.NewDiscoveryClientForConfig(s.Direct(cluster))
	if err != nil {
		return nil, err
	}
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	served := map[string]metav1.APIResource{}
	for _, list := range lists {
		of, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, kind := range list.APIResources {
			kind.Group, kind.Version = of.Group, of.Version
			served[of.WithResource(kind.Name).GroupResource().String()] = kind
		}
	}
	for _, name := range values.FleetIndex.Resources {
		kind, ok := served[name]
		if !ok {
			return nil, fmt.Errorf("%s does not serve %s, which is indexed", cluster, name)
		}
		kinds = append(kinds, kind)
	}
	if len(kinds) == 0 {
		return nil, errors.New("the chart indexes nothing")
	}
	return kinds, nil
}

// IndexHolds returns an error unless the index's store has the objects of a kind that the clusters have, each once. A search
// reads the store, and asks no cluster about objects.
func (s *Suite) IndexHolds(ctx context.Context, kind metav1.APIResource) error {
	want, err := s.objectsOf(ctx, kind)
	if err != nil {
		return err
	}
	got, err := s.search(ctx, "kind:"+schema.GroupResource{Group: kind.Group, Resource: kind.Name}.String())
	if err != nil {
		return err
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("%s in the index's store (-clusters +store):\n%s", kind.Name, diff)
	}
	return nil
}

// objectsOf are the objects of a kind that the clusters have.
func (s *Suite) objectsOf(ctx context.Context, kind metav1.APIResource) (all []string, _ error) {
	for _, cluster := range s.Clusters {
		client, err := dynamic.NewForConfig(s.Direct(cluster))
		if err != nil {
			return nil, err
		}
		list, err := client.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: kind.Name}).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, o := range list.Items {
			all = append(all, fmt.Sprintf("%s %s/%s %s", cluster, o.GetNamespace(), o.GetName(), o.GetUID()))
		}
	}
	slices.Sort(all)
	return all, nil
}

// search returns the objects that the hub's user finds, of all pages.
func (s *Suite) search(ctx context.Context, query string) (all []string, _ error) {
	cfg := rest.AnonymousClientConfig(s.hub)
	cfg.BearerToken = s.HubToken
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	for token := ""; ; {
		raw, err := client.CoreV1().RESTClient().Get().AbsPath("/apis/"+proxyGroup+"/v1alpha1/fleetviews/all/search").
			Param("q", query).Param("limit", fmt.Sprint(indexapi.MaxHits)).Param("continue", token).DoRaw(ctx)
		if err != nil {
			return nil, err
		}
		var page indexapi.SearchAnswer
		if err := json.Unmarshal(raw, &page); err != nil {
			return nil, err
		}
		for _, hit := range page.Hits {
			all = append(all, fmt.Sprintf("%s %s/%s %s", hit.Cluster, hit.Namespace, hit.Name, hit.UID))
		}
		if token = page.Continue; token == "" {
			slices.Sort(all)
			return all, nil
		}
	}
}
