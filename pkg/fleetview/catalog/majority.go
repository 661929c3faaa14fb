package catalog

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// roll has what clusters list, by name.
type roll[T any] struct {
	entries map[string]*entry[T]
	all     []*entry[T]
	compare func(a, b string) int
	// total counts the clusters that have such a list.
	total int
}

// entry is what clusters say of one name.
type entry[T any] struct {
	name     string
	values   []T
	by       []said // of the value at the same place
	clusters int
}

// said tells who says something: the clusters of a source, at a place in its list.
type said struct {
	source, place int
	clusters      []string
}

// newRoll returns a roll in which names that few clusters have are in the order of compare.
func newRoll[T any](compare func(a, b string) int) *roll[T] {
	return &roll[T]{entries: map[string]*entry[T]{}, compare: compare}
}

// add notes a value. A source's second entry does not count.
func (r *roll[T]) add(name string, value T, by said) {
	e := r.entries[name]
	switch {
	case e == nil:
		e = &entry[T]{name: name}
		r.entries[name] = e
		r.all = append(r.all, e)
	case e.by[len(e.by)-1].source == by.source:
		return
	}
	e.values, e.by = append(e.values, value), append(e.by, by)
	e.clusters += len(by.clusters)
}

// sorted returns the entries: first those that more than half of the clusters have, in the
// order in which most have them, and then the others, what more clusters have first. So
// nothing that few clusters list comes before what most list.
func (r *roll[T]) sorted() []*entry[T] {
	places := make(map[*entry[T]]int, len(r.all))
	for _, e := range r.all {
		if places[e] = -1; 2*e.clusters > r.total {
			places[e] = e.place()
		}
	}
	slices.SortStableFunc(r.all, func(a, b *entry[T]) int {
		placeA, placeB := places[a], places[b]
		switch {
		case placeA >= 0 && placeB >= 0:
			return cmp.Or(cmp.Compare(placeA, placeB), r.compare(a.name, b.name))
		case placeA < 0 && placeB < 0:
			return cmp.Or(-cmp.Compare(a.clusters, b.clusters), r.compare(a.name, b.name))
		}
		return -cmp.Compare(placeA, placeB)
	})
	return r.all
}

// place is the median of the places at which clusters list the name: less than half of them
// cannot move it beyond where the others have it.
func (e *entry[T]) place() int {
	by := slices.Clone(e.by)
	slices.SortFunc(by, func(a, b said) int { return cmp.Compare(a.place, b.place) })
	seen := 0
	for _, s := range by {
		if seen += len(s.clusters); 2*seen >= e.clusters {
			return s.place
		}
	}
	return 0
}

// never is for what nothing is usual of.
func never(string) bool { return false }

// most returns what most clusters say of an entry; what is empty is not said. Of what
// equally many say it is what is usual, and else what the cluster says that is first by
// name: a cluster does not choose its name.
func most[T any, W comparable](of *entry[T], says func(T) W, usual func(W) bool) (best W) {
	type votes struct {
		clusters int
		first    string
	}
	var nothing W
	count := map[W]*votes{}
	for i, value := range of.values {
		word := says(value)
		if word == nothing {
			continue
		}
		if count[word] == nil {
			count[word] = &votes{}
		}
		v := count[word]
		v.clusters += len(of.by[i].clusters)
		v.first = firstOf(v.first, of.by[i].clusters)
	}
	for word, v := range count {
		b := count[best]
		switch {
		case b == nil || v.clusters > b.clusters:
			best = word
		case v.clusters < b.clusters:
		case usual(word) != usual(best):
			if usual(word) {
				best = word
			}
		case v.first < b.first:
			best = word
		}
	}
	return best
}

// firstOf is the first by name of a cluster and others; "" is none.
func firstOf(first string, clusters []string) string {
	for _, name := range clusters {
		if first == "" || name < first {
			first = name
		}
	}
	return first
}

// mostKind returns the kind that most clusters give to what an entry is about.
func mostKind[T any](of *entry[T], kind func(T) *metav1.GroupVersionKind) *metav1.GroupVersionKind {
	best := most(of, func(value T) (says metav1.GroupVersionKind) {
		if k := kind(value); k != nil {
			says = *k
		}
		return says
	}, func(metav1.GroupVersionKind) bool { return false })
	if best.Kind == "" {
		return nil
	}
	return &best
}

// mostWords returns the words that more than half of the clusters say.
func mostWords[T any](of *entry[T], words func(T) []string) []string {
	if len(of.values) == 1 {
		return words(of.values[0])
	}
	count := map[string]int{}
	var all []string
	for i, value := range of.values {
		for at, word := range words(value) {
			if slices.Contains(words(value)[:at], word) {
				continue
			}
			if count[word] == 0 {
				all = append(all, word)
			}
			count[word] += len(of.by[i].clusters)
		}
	}
	return slices.DeleteFunc(all, func(word string) bool { return 2*count[word] <= of.clusters })
}

// mostSubresources returns the subresources that any cluster has, with the kinds that most
// give to them.
func mostSubresources(of *entry[APIResource]) []APISubresource {
	if len(of.values) == 1 {
		return of.values[0].Subresources
	}
	all := newRoll[APISubresource](cmp.Compare[string])
	all.total = of.clusters
	for i, r := range of.values {
		for at, s := range r.Subresources {
			all.add(s.Subresource, s, said{of.by[i].source, at, of.by[i].clusters})
		}
	}
	var merged []APISubresource
	for _, e := range all.sorted() {
		s := APISubresource{Subresource: e.name, AcceptedTypes: e.values[0].AcceptedTypes}
		s.ResponseKind = mostKind(e, func(s APISubresource) *metav1.GroupVersionKind { return s.ResponseKind })
		for _, value := range e.values {
			s.Verbs = unionOf(s.Verbs, value.Verbs)
		}
		merged = append(merged, s)
	}
	return merged
}

func kindOfResource(r APIResource) string {
	if r.ResponseKind == nil {
		return ""
	}
	return r.ResponseKind.Kind
}

// isUsual reports whether a resource is called as those of a kind are called by convention.
func isUsual(resource, kind string) bool {
	plural, _ := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: kind})
	return kind != "" && plural.Resource == resource
}

func singularOf(kind string) string { return strings.ToLower(kind) }

// unionOf returns a with what it lacks of b. It does not change a.
func unionOf(a, b []string) []string {
	if a == nil {
		return b
	}
	for _, s := range b {
		if !slices.Contains(a, s) {
			a = append(slices.Clip(a), s)
		}
	}
	return a
}
