package discovery

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/catalog"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fleet"
)

// Resources is what is known of the members of a view.
type Resources struct {
	*catalog.Catalog
	// Versions are the Kubernetes versions of the members by name, like v1.36.3.
	Versions map[string]string
	// Unknown are the members of which it is not known what they serve, and why. They may
	// serve a resource that is not in the Catalog.
	Unknown map[string]error

	// fresh is how old answers may be.
	fresh   time.Duration
	Members []fleet.Member // the known ones, see sort
	served  map[string]served
	stale   map[string]answer // of members that do not answer now
}

// Catalog asks the members, unless their answers are fresh, and merges what they say.
func (d *Discovery) Catalog(ctx context.Context, view fleet.View, members []fleet.Member, fresh time.Duration) *Resources {
	answers := d.ask(ctx, view, members, askServed, fresh)
	known := &Resources{
		fresh:    fresh,
		Versions: map[string]string{}, Unknown: map[string]error{},
		served: map[string]served{}, stale: map[string]answer{},
	}
	for i, a := range answers {
		name := members[i].Name()
		if !a.known() {
			known.Unknown[name] = a.err
			continue
		}
		of := a.value.(served)
		known.Members = append(known.Members, members[i])
		known.served[name], known.Versions[name] = of, of.version
		if a.err != nil {
			known.stale[name] = a
		}
	}
	known.sort()
	known.Catalog = d.merged(view, known)
	return known
}

// sort sets the order of the members: those of releases that at least two members have,
// the newest first, and then the others by name. A member cannot come before others by a
// version that only it says it has.
func (k *Resources) sort() {
	releases := map[release]int{}
	for _, version := range k.Versions {
		releases[ReleaseOf(version)]++
	}
	delete(releases, release{})
	shared := func(m fleet.Member) (r release) {
		if of := ReleaseOf(k.Versions[m.Name()]); releases[of] > 1 {
			r = of
		}
		return r
	}
	slices.SortFunc(k.Members, func(a, b fleet.Member) int {
		releaseA, releaseB := shared(a), shared(b)
		switch {
		case releaseB.Before(releaseA):
			return -1
		case releaseA.Before(releaseB):
			return 1
		}
		return cmp.Compare(a.Name(), b.Name())
	})
}

// GitVersion is the answer of the members to /version: of the oldest release that at least two
// of them have, because clients choose by it what they may send. If each has another one, it
// is the oldest that is near to another one, and else the first member's. nil is none.
func (k *Resources) GitVersion() []byte {
	of := map[release][]fleet.Member{}
	for _, m := range k.Members {
		if r := ReleaseOf(k.Versions[m.Name()]); r != (release{}) {
			of[r] = append(of[r], m)
		}
	}
	var shared, near release
	for r, members := range of {
		if len(members) > 1 && (len(of[shared]) == 0 || r.Before(shared)) {
			shared = r
		}
		for other := range of {
			if other != r && r.Near(other) && (len(of[near]) == 0 || r.Before(near)) {
				near = r
			}
		}
	}
	members := of[shared]
	if members == nil {
		members = of[near]
	}
	if members == nil {
		members = k.Members
	}
	count := map[string]int{}
	most := ""
	for _, m := range members { // by name
		body := string(k.served[m.Name()].body)
		if body == "" {
			continue
		}
		if count[body]++; count[body] > count[most] {
			most = body
		}
	}
	if most == "" {
		return nil
	}
	return []byte(most)
}

// merged returns the Catalog of the known members. It is kept as long as they are the same
// and serve the same.
func (d *Discovery) merged(view fleet.View, known *Resources) *catalog.Catalog {
	h := sha256.New()
	fmt.Fprintf(h, "catalog %q ", view.UnlistedCluster)
	// The rules have strings only: encoding them cannot fail.
	_ = json.NewEncoder(h).Encode(view.Resources)
	for _, member := range known.Members {
		content := known.served[member.Name()].of
		fmt.Fprintf(h, "%q %v", member.Name(), rulesOf(view.Resources, member.Name()))
		h.Write(content[:])
	}
	key := digest(h.Sum(nil))
	if value, ok := d.contents.Get(key); ok {
		return value.(*catalog.Catalog)
	}
	var sources []catalog.Source
	type like struct {
		content  digest
		unlisted bool
		rules    string
	}
	index := map[like]int{}
	for _, member := range known.Members {
		name := member.Name()
		rules := rulesOf(view.Resources, name)
		kind := like{known.served[name].of, name == view.UnlistedCluster, fmt.Sprint(rules)}
		i, ok := index[kind]
		if !ok {
			i = len(sources)
			index[kind] = i
			source := catalog.Source{Groups: known.served[name].groups, Listed: listedBy(view.Resources, rules)}
			if kind.unlisted {
				source.Listed = nil
			}
			sources = append(sources, source)
		}
		sources[i].Clusters = append(sources[i].Clusters, name)
	}
	union := catalog.Union(sources)
	d.contents.Put(key, union, sizeOf(union))
	return union
}

// sizeOf estimates the memory of a Catalog.
func sizeOf(c *catalog.Catalog) int64 {
	const each = 512 // of a resource with its names and verbs, or a subresource with its place
	size := int64(each)
	for _, group := range c.Groups {
		for _, v := range group.Versions {
			size += each
			for _, r := range v.Resources {
				size += each * int64(1+len(r.Subresources))
			}
		}
	}
	return size
}

// rulesOf are the places of the rules that are about a cluster.
func rulesOf(rules []fleet.ResourceRule, cluster string) []int {
	var of []int
	for i, rule := range rules {
		if rule.Of(cluster) {
			of = append(of, i)
		}
	}
	return of
}

// listedBy returns whether a view with these rules has a resource of clusters that the ones
// at places are about; nil if it has all.
func listedBy(rules []fleet.ResourceRule, places []int) func(group, resource string) bool {
	if len(rules) == 0 {
		return nil
	}
	return func(group, resource string) bool {
		return slices.ContainsFunc(places, func(i int) bool { return rules[i].Selects(group, resource) })
	}
}
