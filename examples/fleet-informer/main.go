// Command fleet-informer follows the pods of all clusters of a FleetView with one
// informer of controller-runtime, and prints how many each cluster has whenever that
// changes.
//
// The view has names Qualified: an informer files objects by namespace and name, and of
// two pods that are called the same on two clusters it would hold one.
//
// Pods of a cluster that is away stay, also when the informer has to list again (keep.go).
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
)

// annotationCluster is on each object of a view: the name of its cluster.
const annotationCluster = "clusterproxy.open-cluster-management.io/cluster"

func main() {
	files := clientcmd.NewDefaultClientConfigLoadingRules()
	flag.StringVar(&files.ExplicitPath, "kubeconfig", "", "kubeconfig with a context for the view; without it $KUBECONFIG, then ~/.kube/config")
	viewContext := flag.String("context", "fleet", "context of the view, as kubectl clusterproxy kubeconfig writes it")
	namespace := flag.String("namespace", "", "follow the pods of one namespace only")
	flag.Parse()
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(files, &clientcmd.ConfigOverrides{CurrentContext: *viewContext}).ClientConfig()
	if err != nil {
		log.Fatalf("loading context %q of the kubeconfig: %v", *viewContext, err)
	}
	ctrllog.SetLogger(klog.Background())
	// The context ends with the first SIGINT or SIGTERM; a second one ends the program.
	if err := run(signals.SetupSignalHandler(), config, *namespace, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run follows pods until ctx is done.
func run(ctx context.Context, view *rest.Config, namespace string, out io.Writer) error {
	options := cache.Options{DefaultTransform: cache.TransformStripManagedFields(), NewInformer: newKeepingInformer}
	if namespace != "" {
		options.DefaultNamespaces = map[string]cache.Config{namespace: {}}
	}
	// A manager's cache works as well. This one also stops before it has all pods, which a
	// manager does not (controller-runtime 0.24.1).
	informers, err := cache.New(view, options)
	if err != nil {
		return fmt.Errorf("making a cache: %w", err)
	}
	pods, err := informers.GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("making an informer of pods: %w", err)
	}
	count := &counter{pods: map[string]int{}, changed: make(chan struct{}, 1)}
	registration, err := pods.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { count.add(object, 1) },
		DeleteFunc: func(object any) { count.add(object, -1) },
	})
	if err != nil {
		return fmt.Errorf("following pods: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return informers.Start(ctx) })
	group.Go(func() error { return count.print(ctx, registration.HasSyncedChecker().Done(), out) })
	return group.Wait()
}

// counter counts pods by cluster.
type counter struct {
	changed chan struct{} // holds one if print has something to do

	mu   sync.Mutex
	pods map[string]int
	err  error // why the count is wrong
}

// add counts a pod that came or went. The cluster of a pod never changes.
func (c *counter) add(object any, by int) {
	if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = gone.Obj // the last known state of an object that went unnoticed
	}
	pod, ok := object.(*corev1.Pod)
	if !ok {
		return
	}
	cluster := pod.Annotations[annotationCluster]
	c.mu.Lock()
	defer c.mu.Unlock()
	if cluster == "" || !strings.HasSuffix(pod.Name, "@"+cluster) {
		c.err = fmt.Errorf("pod %q is not called NAME@CLUSTER: the context must lead to a FleetView with names: Qualified", pod.Name)
	}
	c.pods[cluster] += by
	if c.pods[cluster] == 0 {
		delete(c.pods, cluster)
	}
	select {
	case c.changed <- struct{}{}:
	default: // print was told already
	}
}

// print prints the count when it is complete, and whenever it is another one.
func (c *counter) print(ctx context.Context, synced <-chan struct{}, out io.Writer) error {
	select {
	case <-synced:
	case <-ctx.Done():
		return nil
	}
	for last := ""; ; {
		now, err := c.line()
		if err != nil {
			return err
		}
		if now != last {
			fmt.Fprintln(out, now)
			last = now
		}
		select {
		case <-c.changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// line returns the count for people.
func (c *counter) line() (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	total, parts := 0, make([]string, 0, len(c.pods))
	for _, cluster := range slices.Sorted(maps.Keys(c.pods)) {
		total += c.pods[cluster]
		parts = append(parts, fmt.Sprintf("%s %d", cluster, c.pods[cluster]))
	}
	return fmt.Sprintf("%d pods: %s", total, strings.Join(parts, ", ")), c.err
}
