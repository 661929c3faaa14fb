package proxyserver

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/metadata"
	"k8s.io/klog/v2"
	"sigs.k8s.io/apiserver-network-proxy/proto/header"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
)

// countPoll is how often the file of --server-count-file is read.
const countPoll = 2 * time.Second

// serverCount is how many proxy servers agents should connect to. From a file it
// may change while the server runs: were it an argument alone, to have one
// server more would mean to replace them all.
type serverCount struct {
	file string // empty if it never changes
	n    atomic.Int64
}

func (c *serverCount) get() int { return int(c.n.Load()) }

// load reads the file and reports whether the number is another one.
func (c *serverCount) load() (changed bool, err error) {
	if c.file == "" {
		return false, nil
	}
	content, err := os.ReadFile(c.file)
	if err != nil {
		return false, fmt.Errorf("reading how many proxy servers there are: %w", err)
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil || n < 1 {
		return false, fmt.Errorf("reading how many proxy servers there are: %q in %q is not a number of at least 1", content, c.file)
	}
	return c.n.Swap(int64(n)) != int64(n), nil
}

// run tells agents of every change until ctx is done. A file that cannot be read
// changes nothing.
func (c *serverCount) run(ctx context.Context, changed func(n int)) error {
	logger := klog.FromContext(ctx)
	tick := time.NewTicker(countPoll)
	defer tick.Stop()
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		other, err := c.load()
		if err != nil && err.Error() != last {
			last = err.Error()
			logger.Error(err, "Keeping the number that is known", "servers", c.get())
		}
		if other {
			logger.Info("There is another number of proxy servers", "servers", c.get())
			changed(c.get())
		}
	}
}

// SendHeader says how many servers there are now. Konnectivity's server knows
// only the number that it started with.
func (s *agentStream) SendHeader(md metadata.MD) error {
	if s.servers != nil && len(md.Get(header.ServerCount)) > 0 {
		md = md.Copy()
		md.Set(header.ServerCount, strconv.Itoa(s.servers.get()))
	}
	defer s.greet()
	return s.ServerStream.SendHeader(md)
}

// tellCount tells the agents that speak carriers how many proxy servers there
// are. Konnectivity's agents hear it with their next stream.
func (a *carrierAgents) tellCount(n int) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	for _, agent := range a.sessions {
		if agent.hasCarriers() {
			agent.tell(agentapi.ServerCount, n)
		}
	}
}
