package proxyserver

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/filewatch"
)

// countPoll is how often the file of --server-count-file is read.
const countPoll = 2 * time.Second

// serverCount is how many proxy servers agents should connect to. From a file it may
// change while the server runs: with an argument alone, one more server would mean to
// replace all servers.
type serverCount struct {
	file string // empty if it never changes
	n    atomic.Int64
}

func (c *serverCount) get() int { return int(c.n.Load()) }

// load reads the file and reports whether the number has changed.
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
	return filewatch.Loop{
		Interval: countPoll,
		Load:     c.load,
		Changed: func() {
			logger.Info("The number of proxy servers changed", "servers", c.get())
			changed(c.get())
		},
		Failed: func(err error) { logger.Error(err, "Keeping the number that is known", "servers", c.get()) },
	}.Run(ctx)
}
