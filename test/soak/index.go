package soak

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
)

// startIndex starts the clients of the fleet index: lists of the Indexed view as Tables by each endpoint, and on each
// cluster writes of what is indexed.
func (c *crowd) startIndex(ctx context.Context, t *testing.T) {
	c.s.AwaitView(t, "live")
	for _, endpoint := range c.s.ViewEndpoints("all", c.s.HubToken) {
		cfg := rest.CopyConfig(endpoint.Cfg)
		cfg.WarningHandler = rest.NoWarnings{} // of clusters that are away
		cs, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.ask(ctx, "indexed list, "+endpoint.Name, "", request, often, func(ctx context.Context) error { return listTable(ctx, cs) })
	}
	for _, cluster := range c.s.Clusters {
		cs, err := kubernetes.NewForConfig(c.s.Direct(cluster))
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		c.ask(ctx, "direct writes of Services", cluster, straight, often/2, func(ctx context.Context) error {
			n++
			return churn(ctx, cs, n)
		})
	}
}

// listTable lists pods as kubectl get -A does.
func listTable(ctx context.Context, cs *kubernetes.Clientset) error {
	raw, err := cs.CoreV1().RESTClient().Get().AbsPath("/api/v1/pods").SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").DoRaw(ctx)
	if err != nil {
		return err
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		return err
	}
	if len(table.Rows) == 0 {
		return errors.New("no rows")
	}
	return nil
}

// churned is how many Services of a cluster there are at a time.
const churned = 20

// churn makes the n-th Service and changes it, and deletes one that it made before.
func churn(ctx context.Context, cs *kubernetes.Clientset, n int) error {
	services := cs.CoreV1().Services("default")
	name := fmt.Sprint("soak-churn-", n)
	made := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.org"}}
	if _, err := services.Create(ctx, made, metav1.CreateOptions{}); err != nil {
		return err
	}
	if _, err := services.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"soak":"changed"}}}`), metav1.PatchOptions{}); err != nil {
		return err
	}
	err := services.Delete(ctx, fmt.Sprint("soak-churn-", n-churned), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil // the first ones, and those that were not made
	}
	return err
}

// awaitIndex waits until the index has what the clusters have, and returns in what they differ if that does not come.
func awaitIndex(ctx context.Context, s *suite.Suite) error {
	kinds, err := s.IndexedKinds(s.Clusters[0])
	if err != nil {
		return err
	}
	began := time.Now()
	for _, kind := range kinds {
		if err := suite.WaitUntil(ctx, 2*suite.Timeout, func() error { return s.IndexHolds(ctx, kind) }); err != nil {
			return fmt.Errorf("%w, %s after the last client", err, time.Since(began).Round(time.Second))
		}
	}
	return nil
}
