package fleetview

import (
	"net/url"
	"strings"
)

// maxUsual bounds the bytes of requests of which it is known how many members they need.
const maxUsual = 1 << 20

// share is how many items some clusters have.
type share struct{ clusters, items int }

// filling is how many clusters are likely to have so many items.
func (s share) filling(items int) int { return max(1, (items*s.clusters+s.items-1)/s.items) }

// remember notes what a first page had: the next one asks as many members at first. Answers
// of others are not read, and cost them as much as if they were.
func (l *listing) remember() {
	if l.first && l.limit > 0 && l.items > 0 {
		about := l.about()
		l.h.usual.put(about, share{max(1, l.clusters), l.items}, int64(len(about)))
	}
}

// about is who asked for what, whichever page it is.
func (l *listing) about() string {
	selectors := url.Values{"l": l.query["labelSelector"], "f": l.query["fieldSelector"]}
	return strings.Join([]string{l.view.User, l.view.Name, l.path.String(), selectors.Encode()}, "\n")
}
