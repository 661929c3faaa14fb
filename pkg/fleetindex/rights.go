package fleetindex

import (
	"slices"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// Rights returns where in a cluster the caller may list a resource. It is called for each feed that a
// request may read, and decides before anything is read. Nil is none.
type Rights func(cluster string, resource feed.Resource) Scope

// Scope is namespaces of a cluster. The zero value is none.
type Scope struct {
	// All means all namespaces, and objects that are in none.
	All bool
	// Namespaces are those if not all.
	Namespaces []string
}

// Has reports whether a namespace is in the scope.
func (s Scope) Has(namespace string) bool { return s.All || slices.Contains(s.Namespaces, namespace) }

func (s Scope) equal(other Scope) bool {
	return s.All && other.All || s.All == other.All && slices.Equal(s.Namespaces, other.Namespaces)
}

func (s Scope) any() bool { return s.All || len(s.Namespaces) > 0 }
