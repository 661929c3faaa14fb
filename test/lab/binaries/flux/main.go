// Program flux does with Flux' library for server-side apply what its kustomize-controller does:
// it applies the manifests of a file, waits until they are healthy, finds no drift, and deletes
// what it has applied.
//
// Usage: flux apply|diff|delete FILE
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/polling"
	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/utils"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
)

func main() {
	log.SetLogger(zap.New(zap.UseDevMode(true)))
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: flux apply|diff|delete FILE")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, what, file string) error {
	manifests, err := os.Open(file)
	if err != nil {
		return err
	}
	defer manifests.Close()
	objects, err := utils.ReadObjects(manifests)
	if err != nil {
		return err
	}
	manager, err := newManager()
	if err != nil {
		return err
	}
	manager.SetOwnerLabels(objects, "e2e", "default")
	switch what {
	case "apply":
		return apply(ctx, manager, objects)
	case "diff":
		for _, object := range objects {
			entry, _, _, err := manager.Diff(ctx, object, ssa.DefaultDiffOptions())
			if err != nil {
				return err
			}
			fmt.Println(entry)
		}
		return nil
	case "delete":
		changes, err := manager.DeleteAll(ctx, objects, ssa.DefaultDeleteOptions())
		if err != nil {
			return err
		}
		fmt.Println(changes)
		return manager.WaitForTermination(objects, waiting())
	}
	return fmt.Errorf("%q is neither apply, diff nor delete", what)
}

func apply(ctx context.Context, manager *ssa.ResourceManager, objects []*unstructured.Unstructured) error {
	changes, err := manager.ApplyAllStaged(ctx, objects, ssa.DefaultApplyOptions())
	if err != nil {
		return err
	}
	fmt.Println(changes)
	if err := manager.Wait(objects, waiting()); err != nil {
		return err
	}
	fmt.Println("all are healthy")
	return nil
}

func waiting() ssa.WaitOptions { return ssa.WaitOptions{Interval: time.Second, Timeout: time.Minute} }

// newManager has the cluster of KUBECONFIG, with a mapper that asks for kinds when it meets them, as
// kustomize-controller's.
func newManager() (*ssa.ResourceManager, error) {
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		return nil, err
	}
	poller := polling.NewStatusPoller(c, c.RESTMapper(), polling.Options{})
	return ssa.NewResourceManager(c, poller, ssa.Owner{Field: "e2e", Group: "e2e.example.org"}), nil
}
