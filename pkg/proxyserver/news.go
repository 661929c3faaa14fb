package proxyserver

import (
	"errors"
	"io"
	"sync"
)

// networkDirectory is the network of an OPEN by which a peer asks which hosts have agents
// here. No cluster can be called what directoryAddress says.
const (
	networkDirectory = "directory"
	directoryAddress = "_directory:0"
)

const (
	// directoryChunk is how many hosts are in one directoryNews at most.
	directoryChunk = 500
	// maxNews is how long one message of a peer may be: directoryChunk hosts of the longest
	// names take an eighth of it.
	maxNews = 1 << 20
)

// directoryNews is what has changed since the last one, as a line of JSON. The first
// ones have everything.
type directoryNews struct {
	Has   []string `json:"has,omitempty"`   // hosts of agents that have come
	Lacks []string `json:"lacks,omitempty"` // and of the last agents that have gone
	// Complete says that nothing is missing, though it may be out of date.
	Complete bool `json:"complete,omitempty"`
	Draining bool `json:"draining,omitempty"` // the server is about to stop
}

// follower is a peer that is told of the agents here.
type follower struct {
	mu      sync.Mutex
	hosts   map[string]bool // that it was not told of; whether there is an agent
	changed chan struct{}   // has a token if there is something to tell
}

// note adds hosts, or none if something else has changed.
func (f *follower) note(hosts []string, present bool) {
	f.mu.Lock()
	for _, host := range hosts {
		f.hosts[host] = present
	}
	f.mu.Unlock()
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

// take moves hosts to news, as many as fit.
func (f *follower) take(news *directoryNews) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for host, present := range f.hosts {
		if len(news.Has)+len(news.Lacks) == directoryChunk {
			return
		}
		if delete(f.hosts, host); present {
			news.Has = append(news.Has, host)
		} else {
			news.Lacks = append(news.Lacks, host)
		}
	}
	news.Complete = true
}

var errLongNews = errors.New("the message is too long")

// newsReader ends when a message is too long: a decoder would hold all of it in memory.
type newsReader struct {
	from io.Reader
	left int // for the message that is being read
}

func (r *newsReader) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, errLongNews
	}
	n, err := r.from.Read(p[:min(len(p), r.left)])
	r.left -= n
	return n, err
}

// told is what a peer says of itself. When it cannot be heard any more, its agents are
// not known any more.
type told struct {
	complete bool                // nothing is missing
	hosts    map[string]struct{} // of the agents that it has
	draining bool
}

// has reports whether the peer has an agent of a host.
func (t *told) has(host string) bool {
	_, has := t.hosts[host]
	return has
}
