package view

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// MaxNames is how many names of clusters are in an audit event.
const MaxNames = 100

// Names are those of clusters, for an audit event. The zero value is ready, and safe for
// concurrent use.
type Names struct {
	mu  sync.Mutex
	all map[string]struct{}
}

func (n *Names) Add(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.all == nil {
		n.all = map[string]struct{}{}
	}
	n.all[name] = struct{}{}
}

func (n *Names) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	sorted := make([]string, 0, len(n.all))
	for name := range n.all {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	if more := len(sorted) - MaxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(sorted[:MaxNames], ","), more)
	}
	return strings.Join(sorted, ",")
}
