package index

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/status"
)

const (
	// maxResources bounds the resources of a stream.
	maxResources = 64
	// heartbeat is how often the agent says that it has sent all that it knows of.
	heartbeat = 10 * time.Second
)

// secrets are in no index: their names and labels alone say where credentials are.
var secrets = feed.Resource{Resource: "secrets"}

// Feeds answers the fleet index with the changes of resources. It has one stream: a newer one ends the
// one before, whose index has lost the cluster to another replica.
type Feeds struct {
	client *client

	mu      sync.Mutex
	current *stream
}

// stream is one answer.
type stream struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// NewFeeds returns Feeds of the cluster that a configuration leads to, with the agent's own rights.
func NewFeeds(cfg *rest.Config) (*Feeds, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("parsing the address of the kube-apiserver %q: %w", cfg.Host, err)
	}
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("preparing connections of the fleet index to the kube-apiserver: %w", err)
	}
	return &Feeds{client: &client{http: &http.Client{Transport: transport}, base: base}}, nil
}

// ServeHTTP answers a feed.Request with feed.Messages until the connection ends, or a message says that
// the index must ask again.
func (f *Feeds) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		status.Write(w, status.New(http.StatusMethodNotAllowed, "the index asks by POST").ErrStatus)
		return
	}
	request, err := feed.ReadRequest(r.Body)
	if err == nil {
		err = check(request)
	}
	if err != nil {
		status.Write(w, status.New(http.StatusBadRequest, err.Error()).ErrStatus)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	s := &stream{cancel, make(chan struct{})}
	defer close(s.ended)
	if !f.replace(ctx, s) {
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	o := &output{writer: feed.NewWriter(w), flush: http.NewResponseController(w).Flush}
	if err := o.flush(); err != nil { // the index waits for the answer to begin with others that it asks
		return
	}
	f.run(ctx, request, o)
}

// check refuses a request for what is in no index. A name of a resource is no path to something else.
func check(request *feed.Request) error {
	if n := len(request.Resources); n == 0 || n > maxResources {
		return fmt.Errorf("the request has %d resources, and may have 1 to %d", n, maxResources)
	}
	for _, k := range request.Resources {
		switch {
		case k.Resource == secrets:
			return errors.New("no index has Secrets")
		case k.Resource.Resource == "" || strings.Trim(k.Group+k.Resource.Resource, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "":
			return fmt.Errorf("%q is no resource", k.Resource)
		}
	}
	return nil
}

// replace makes a stream the current one after the one before has ended.
func (f *Feeds) replace(ctx context.Context, s *stream) bool {
	f.mu.Lock()
	former := f.current
	f.current = s
	f.mu.Unlock()
	if former == nil {
		return true
	}
	former.cancel()
	select {
	case <-former.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *Feeds) run(ctx context.Context, request *feed.Request, o *output) {
	group, ctx := errgroup.WithContext(ctx)
	var failing atomic.Int64
	for _, known := range request.Resources {
		follower := newFollower(f.client, known, o.send)
		group.Go(func() error { return follower.run(ctx, func(by int) { failing.Add(int64(by)) }) })
	}
	group.Go(func() error {
		tick := time.NewTicker(heartbeat)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-tick.C:
				if failing.Load() > 0 {
					continue
				}
				if err := o.send(&feed.Message{}); err != nil {
					return err
				}
			}
		}
	})
	_ = group.Wait() // the index sees the stream end, and asks again
}

// output is the stream's way to the index.
type output struct {
	mu     sync.Mutex
	writer *feed.Writer
	flush  func() error
}

func (o *output) send(m *feed.Message) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err := o.writer.Write(m); err != nil {
		return errors.Join(errStream, err)
	}
	if err := o.flush(); err != nil {
		return errors.Join(errStream, err)
	}
	return nil
}
