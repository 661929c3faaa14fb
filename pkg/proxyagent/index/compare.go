package index

import (
	"maps"
	"slices"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// comparison finds what differs from what the index has. It holds no rows.
type comparison struct {
	// items are the index's of namespaces for which it said them: versions by UIDs, without those that were seen.
	items map[string]map[uint64]uint32
	// digests are the index's of the other namespaces, less what was seen.
	digests map[string]feed.Digest
}

// newComparison reads what the index has. Items that make no sense are none: the rows are then sent.
func newComparison(k feed.Known) *comparison {
	c := &comparison{items: map[string]map[uint64]uint32{}, digests: maps.Clone(k.Digests)}
	for namespace, content := range k.Items {
		items, err := feed.Items(content)
		if err != nil {
			continue
		}
		c.items[namespace] = make(map[uint64]uint32, len(items))
		for _, item := range items {
			c.items[namespace][item.UID] = item.Version
		}
		delete(c.digests, namespace)
	}
	return c
}

// isNew reports whether a row is to be sent, and counts it as seen.
func (c *comparison) isNew(r *feed.Row) bool {
	item := feed.ItemOf(r.UID, r.Version)
	if items, ok := c.items[r.Namespace]; ok {
		version, ok := items[item.UID]
		delete(items, item.UID)
		return !ok || version != item.Version
	}
	if digest, ok := c.digests[r.Namespace]; ok {
		c.digests[r.Namespace] = digest.Remove(item)
		return false
	}
	return true
}

// gone returns the UIDs of rows that were not seen.
func (c *comparison) gone() (uids []uint64) {
	for _, items := range c.items {
		uids = slices.AppendSeq(uids, maps.Keys(items))
	}
	return uids
}

// differ returns the namespaces whose rows are not those of the index, of which the index said no more
// than the digest.
func (c *comparison) differ() (namespaces []string) {
	for namespace, digest := range c.digests {
		if digest != 0 {
			namespaces = append(namespaces, namespace)
		}
	}
	slices.Sort(namespaces)
	return namespaces
}
