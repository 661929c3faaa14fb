package ownerpolicy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/filewatch"
)

// interval is how often the policy is read (package filewatch).
const interval = 3 * time.Second

// Folder is a mounted ConfigMap with the owner's policy. It may be used by many
// goroutines.
type Folder struct {
	dir     string
	current atomic.Pointer[read]
	invalid prometheus.Gauge
}

// read is a policy, or why there is none to follow.
type read struct {
	policy Policy
	err    error
}

// NewFolder makes one and registers its metric; nothing is read before Load. An
// empty dir is an owner without a policy.
func NewFolder(dir string, registry prometheus.Registerer) *Folder {
	f := &Folder{dir: dir, invalid: prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "cluster_proxy_agent_owner_policy_invalid",
		Help: "1 while the owner policy is invalid and the agent refuses every request of the hub.",
	})}
	registry.MustRegister(f.invalid)
	return f
}

// Policy is the policy of this moment. With an error nothing may pass.
func (f *Folder) Policy() (Policy, error) {
	if f.dir == "" {
		return Policy{}, nil
	}
	if now := f.current.Load(); now != nil {
		return now.policy, now.err
	}
	return Policy{}, errors.New("the owner policy has not been read yet")
}

// Load reads the policy. An error is kept for Policy.
func (f *Folder) Load() {
	if f.dir == "" {
		return
	}
	policy, err := load(f.dir)
	if err != nil {
		err = fmt.Errorf("the agent refuses every request of the hub until the managed cluster's owner corrects ConfigMap %s: %w", ConfigMap, err)
	}
	f.current.Store(&read{policy, err})
}

// Run reads the policy again and again until ctx is done.
func (f *Folder) Run(ctx context.Context) error {
	if f.dir == "" {
		return nil
	}
	logger := klog.FromContext(ctx)
	said := fmt.Sprint(Policy{})
	return filewatch.Loop{
		Interval: interval,
		Load: func() (changed bool, err error) {
			f.Load()
			policy, err := f.Policy()
			if err != nil {
				f.invalid.Set(1)
				said = "" // the next policy is news, even if it is the one of before
				return false, err
			}
			f.invalid.Set(0)
			now := fmt.Sprint(policy)
			changed, said = now != said, now
			return changed, nil
		},
		Changed: func() {
			policy, _ := f.Policy()
			logger.Info("Read the owner's policy", "readOnly", policy.ReadOnly, "noStreams", policy.NoStreams, "noSecrets", policy.NoSecrets,
				"noMetrics", policy.NoMetrics, "noIndex", policy.NoIndex, "allowedReservedNames", policy.AllowedReservedNames)
		},
		Failed: func(err error) { logger.Error(err, "Refusing every request") },
	}.Run(ctx)
}

// load takes a folder that is absent or empty for no policy. A file of another
// name is a mistake in a policy that was meant to cap something.
func load(dir string) (Policy, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Policy{}, fmt.Errorf("reading the owner's policy: %w", err)
	}
	var policy Policy
	for _, entry := range entries {
		switch name := entry.Name(); {
		case strings.HasPrefix(name, "."): // the kubelet's own
		case name != Key:
			return Policy{}, fmt.Errorf("it has the key %q: the only key is %s", name, Key)
		default:
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return Policy{}, fmt.Errorf("reading the owner's policy: %w", err)
			}
			if policy, err = Parse(content); err != nil {
				return Policy{}, err
			}
		}
	}
	return policy, nil
}
