package fleetindex

import (
	"context"
	"fmt"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// Have returns what there is of a resource: the digest of each namespace that has rows, and the items in
// binary of those for which withItems is true.
func (w *Writer) Have(ctx context.Context, r feed.Resource, withItems func(namespace string) bool) (digests map[string]feed.Digest, items map[string][]byte, err error) {
	digests, items = map[string]feed.Digest{}, map[string][]byte{}
	err = w.items(ctx, r, ``, nil, func(key feed.Key, item feed.Item) {
		if _, ok := digests[key.Namespace]; !ok && withItems(key.Namespace) {
			items[key.Namespace] = nil
		}
		digests[key.Namespace] = digests[key.Namespace].Add(item)
		if content, ok := items[key.Namespace]; ok {
			items[key.Namespace] = item.Append(content)
		}
	})
	return digests, items, err
}

// Items returns the items of a namespace's rows, and whose they are.
func (w *Writer) Items(ctx context.Context, r feed.Resource, in string) (map[feed.Key]feed.Item, error) {
	items := map[feed.Key]feed.Item{}
	err := w.items(ctx, r, ` AND namespace = ?`, []any{namespace(in)}, func(key feed.Key, item feed.Item) { items[key] = item })
	return items, err
}

func (w *Writer) items(ctx context.Context, r feed.Resource, condition string, args []any, visit func(feed.Key, feed.Item)) error {
	f, ok := w.Feeds()[r]
	if !ok {
		return nil
	}
	var key feed.Key
	var uid, version string
	err := w.store.each(ctx, `SELECT namespace, name, uid, version FROM object WHERE feed = ?`+condition, append([]any{f.id}, args...),
		[]any{(*namespace)(&key.Namespace), &key.Name, &uid, &version}, func() error {
			visit(key, feed.ItemOf(uid, version))
			return nil
		})
	if err != nil {
		return fmt.Errorf("reading which %s of cluster %q there are: %w", r, w.name, err)
	}
	return nil
}
