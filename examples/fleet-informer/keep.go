package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// annotationMissing is on bookmarks of a view: the names of clusters that have not answered since
// the watch began, and whose objects it has not sent.
const annotationMissing = "clusterproxy.open-cluster-management.io/missing-clusters"

// newKeepingInformer makes an informer that tells "away" from "gone". One that has to list again takes what
// is not in the list for deleted. This one keeps the objects of clusters that the view
// names as missing, until the cluster is back and it is known which of them are there.
func newKeepingInformer(view toolscache.ListerWatcher, of runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	k := &keeper{view: toolscache.ToListerWatcherWithContext(view)}
	informer := toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		// A list in Go does not say whose objects are missing. The informer goes on to ask for a
		// watch with initial events, which every view answers.
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			return nil, errors.New("listing by a watch only: a list does not say which clusters are missing")
		},
		WatchFuncWithContext: k.watch,
	}, of, resync, indexers)
	k.store = informer.GetStore()
	return informer
}

// keeper adds to watches of a view what the view does not know: the objects that the informer has of
// missing clusters.
type keeper struct {
	view  toolscache.ListerWatcherWithContext
	store toolscache.Store

	mu sync.Mutex
	// kept are objects of clusters that are missing, by their keys, and sent has the keys of
	// what the watch has sent up to the bookmark behind its initial events.
	kept map[string]object
	sent map[string]bool
}

type object interface {
	metav1.Object
	runtime.Object
}

func (k *keeper) watch(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	from, err := k.view.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	events := make(chan watch.Event)
	to := watch.NewProxyWatcher(events)
	if options.SendInitialEvents != nil && *options.SendInitialEvents {
		k.mu.Lock()
		k.kept, k.sent = map[string]object{}, map[string]bool{}
		k.mu.Unlock()
	}
	go func() {
		defer close(events)
		defer from.Stop()
		for {
			select {
			case <-to.StopChan():
				return
			case event, ok := <-from.ResultChan():
				if !ok {
					return
				}
				for _, e := range append(k.before(event), event) {
					select {
					case events <- e:
					case <-to.StopChan():
						return
					}
				}
			}
		}
	}()
	return to, nil
}

// before returns the events that come before one of the view.
func (k *keeper) before(event watch.Event) (more []watch.Event) {
	o, ok := event.Object.(object)
	if !ok {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if event.Type != watch.Bookmark {
		key := o.GetNamespace() + "/" + o.GetName()
		if delete(k.kept, key); k.sent != nil {
			k.sent[key] = true
		}
		return nil
	}
	missing := strings.Split(o.GetAnnotations()[annotationMissing], ",")
	isMissing := func(of metav1.Object) bool { return slices.Contains(missing, of.GetAnnotations()[annotationCluster]) }
	if o.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
		for _, stored := range k.store.List() {
			has, ok := stored.(object)
			if !ok || !isMissing(has) {
				continue
			}
			if key := has.GetNamespace() + "/" + has.GetName(); !k.sent[key] {
				k.kept[key] = has
				more = append(more, watch.Event{Type: watch.Added, Object: has})
			}
		}
		k.sent = nil
		return more
	}
	for key, has := range k.kept {
		if !isMissing(has) { // its cluster is back, and has not sent it
			delete(k.kept, key)
			more = append(more, watch.Event{Type: watch.Deleted, Object: has})
		}
	}
	return more
}
