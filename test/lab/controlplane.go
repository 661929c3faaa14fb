package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
)

// ControlPlane is a hub of etcd and kube-apiserver only, for tests of what a
// kube-apiserver answers. It builds nothing else.
type ControlPlane struct {
	*Cluster
	assets        Assets
	store, server *group
	flags         []string
}

// StartControlPlane starts a control plane in an empty folder. Flags are added to
// those of the kube-apiserver. Stop it with Stop; if it cannot be started,
// nothing is left running.
func StartControlPlane(ctx context.Context, dir string, out io.Writer, flags ...string) (*ControlPlane, error) {
	assets, err := buildControlPlane(ctx, out)
	if err != nil {
		return nil, err
	}
	p := &ControlPlane{Cluster: &Cluster{Name: hubName, dir: filepath.Join(dir, hubName), logs: filepath.Join(dir, "logs")}, assets: assets, store: newGroup(), server: newGroup(), flags: flags}
	var peer int
	if err := ports.Fill(&p.etcdPort, &p.apiPort, &peer); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(p.logs, 0o755); err != nil {
		return nil, err
	}
	if err := p.prepare(); err != nil {
		return nil, fmt.Errorf("preparing a control plane: %w", err)
	}
	limited, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err = p.startEtcd(limited, p.store, assets, peer); err == nil {
		err = p.startAPIServer(limited, p.server, assets, flags...)
	}
	if err != nil {
		p.Stop()
		return nil, err
	}
	return p, nil
}

// CRDs is the folder with the definitions of a hub.
func (p *ControlPlane) CRDs(ctx context.Context) (string, error) {
	r, err := Release("").find()
	if err != nil {
		return "", err
	}
	if dir := os.Getenv(AssetsVariable); dir != "" {
		return filepath.Join(dir, "ocm-"+r.version, hubCRDs), nil
	}
	dir, err := r.writeFiles(ctx)
	return filepath.Join(dir, hubCRDs), err
}

// Restart stops the kube-apiserver and starts it again. It returns when the
// kube-apiserver is ready.
func (p *ControlPlane) Restart(ctx context.Context) error {
	p.server.stop()
	p.server = newGroup()
	limited, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	return p.startAPIServer(limited, p.server, p.assets, p.flags...)
}

// Stop ends the control plane.
func (p *ControlPlane) Stop() {
	p.server.stop()
	p.store.stop()
}
