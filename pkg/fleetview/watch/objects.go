package watch

import (
	"fmt"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/version"
)

// objects are what a stream has shown of one member, by namespace and name. It is kept
// for each stream and member, so it is compact: key and UID share one string.
type objects map[string]known

type known struct {
	uid string
	// version is 0 if it is no decimal; then no other version is equal to it.
	version uint64
}

// nameOf is what objects are remembered by.
func nameOf(k merge.Key) string { return k.Namespace + "/" + k.Name }

func (o objects) put(k merge.Key) {
	name := nameOf(k)
	both := name + k.UID
	o[both[:len(name)]] = known{uid: both[len(name):], version: version.OfMember(k.Version)}
}

// checkNames refuses names that are too long to be remembered. A real name has at most 253
// characters.
func checkNames(k merge.Key) error {
	if len(k.Name)+len(k.Namespace)+len(k.UID) > maxNames {
		return fmt.Errorf("reading an object: its names have more than %d characters", maxNames)
	}
	return nil
}
