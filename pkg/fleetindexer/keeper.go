package fleetindexer

import (
	"context"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
)

const (
	// keepInterval is how often the store learns what clusters allowed, and keepAgainAfter how old its time of a decision gets
	// before it learns of a new one.
	keepInterval, keepAgainAfter = 10 * time.Second, 5 * time.Minute
	// maxUnwritten bounds the decisions that wait to be written.
	maxUnwritten = 100_000
	// keepTimeout bounds a read or write of decisions.
	keepTimeout = 5 * time.Second
)

// keptKey names a decision.
type keptKey struct {
	question fleetindex.Digest
	cluster  fleetindex.Cluster
}

// keeper writes to the store what clusters decided.
type keeper struct {
	*shared
	// isReplica says that other processes write decisions too.
	isReplica bool

	mu sync.Mutex
	// allowed are not written yet, and writing are being written; with the times at which clusters were asked.
	allowed, writing map[keptKey]time.Time
	// next is what is taken back after what is being taken back.
	next     *takingBack
	takeBack sync.Mutex
}

// takingBack is one transaction, for all that wait for it.
type takingBack struct {
	denied []fleetindex.Decision
	done   chan struct{}
	err    error // after done
}

// allow has a decision written later. Beyond the bound it is not, and shows less after a restart.
func (k *keeper) allow(key keptKey, at time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.allowed[key]; !ok && len(k.allowed) >= maxUnwritten {
		return
	}
	if k.allowed == nil {
		k.allowed = map[keptKey]time.Time{}
	}
	k.allowed[key] = at
}

// isUnwritten reports whether a decision is still to come to the store.
func (k *keeper) isUnwritten(key keptKey) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, waits := k.allowed[key]
	_, isWritten := k.writing[key]
	return waits || isWritten
}

// deny returns when the store has taken decisions back.
func (k *keeper) deny(ctx context.Context, keys []keptKey, at time.Time) error {
	k.mu.Lock()
	b := k.next
	if b == nil {
		b = &takingBack{done: make(chan struct{})}
		k.next = b
		go k.commit(context.WithoutCancel(ctx), b)
	}
	for _, key := range keys {
		delete(k.allowed, key) // it is older
		b.denied = append(b.denied, fleetindex.Decision{Question: key.question, Cluster: key.cluster, At: at})
	}
	k.mu.Unlock()
	<-b.done
	return b.err
}

func (k *keeper) commit(ctx context.Context, b *takingBack) {
	defer close(b.done)
	k.takeBack.Lock()
	defer k.takeBack.Unlock()
	k.mu.Lock()
	k.next = nil
	k.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if b.err = k.store.TakeBack(ctx, b.denied); b.err != nil {
		k.failed(context.WithoutCancel(ctx), b.err, "Failed to write that clusters allow less; they count as undecided")
	}
}

// write writes what waits, and drops it if that fails: it was allowed, and will be again.
func (k *keeper) write(ctx context.Context) {
	k.mu.Lock()
	k.allowed, k.writing = nil, k.allowed
	k.mu.Unlock()
	var allowed []fleetindex.Decision
	now := time.Now()
	for key, at := range k.writing { // only this method changes it
		if now.Sub(at) < fleetindex.MaxDecisionAge {
			allowed = append(allowed, fleetindex.Decision{Question: key.question, Cluster: key.cluster, At: at})
		}
	}
	if len(allowed) > 0 {
		ctx, cancel := context.WithTimeout(ctx, keepTimeout)
		defer cancel()
		if err := k.store.Keep(ctx, allowed); err != nil {
			k.failed(ctx, err, "Failed to write what clusters allow; it is not known after a restart")
		}
	}
	k.mu.Lock()
	k.writing = nil
	k.mu.Unlock()
}
