package proxyserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/carrier"
)

const (
	// followAgain is the pause before a peer is asked again which hosts it has agents of.
	followAgain = time.Second
	// maxNews is how long one message of a peer may be: directoryChunk hosts of the longest
	// names take an eighth of it.
	maxNews = 1 << 20
)

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

// follow hears which hosts a peer has agents of, until the peer is forgotten. It asks
// only a peer that is reached: an address may be this server's own.
func (p *peers) follow(one *peerServer) {
	ctx := one.alive.Context()
	for ctx.Err() == nil {
		if one.reached() {
			_ = p.hear(ctx, one)
			p.mu.Lock()
			one.told = told{draining: one.told.draining}
			p.mu.Unlock()
		}
		timer := time.NewTimer(followAgain)
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// hear reads the news of a peer until it says no more.
func (p *peers) hear(ctx context.Context, one *peerServer) error {
	conn, err := one.pool.Open(ctx, carrier.OpenRequest{Network: networkDirectory, Address: directoryAddress, Hops: 1})
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	from := &newsReader{from: conn}
	for in := json.NewDecoder(from); ; {
		from.left = maxNews
		var news directoryNews
		if err := in.Decode(&news); err != nil {
			return fmt.Errorf("reading which clusters a peer has: %w", err)
		}
		p.note(one, news)
	}
}

// note adds news of a peer to what it has said.
func (p *peers) note(one *peerServer, news directoryNews) {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := &one.told
	if t.hosts == nil {
		t.hosts = map[string]struct{}{}
	}
	for _, host := range news.Has {
		t.hosts[host] = struct{}{}
	}
	for _, host := range news.Lacks {
		delete(t.hosts, host)
		if p.last[host] == one {
			delete(p.last, host)
		}
	}
	t.complete, t.draining = t.complete || news.Complete, news.Draining
}
