package proxyapi

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
)

// cutOff is how long requests get to end after they were canceled, and the last traces to
// be sent.
const cutOff = 5 * time.Second

// parts are what a Server asks the hub with, and what runs beside requests.
type parts struct {
	clusters      clusters
	views         views
	authenticator *hubaccess.Authenticator
	authorizer    *hubaccess.Authorizer
	services      services
	// karmada is nil if there is no such API.
	karmada *karmada
	config  *server.Config
	// background runs as long as requests do.
	background []func(context.Context) error
}

// viewsAndSets is what the hub knows about views, and about the sets that rights are for.
type viewsAndSets interface {
	views
	hubaccess.ClusterSets
}

// newParts does no I/O but to read the files that options name.
func newParts(o *Options, m *metrics, hub kubernetes.Interface, c clusters, v viewsAndSets, background ...func(context.Context) error) (*parts, error) {
	p := &parts{clusters: c, views: v, config: newConfig()}
	var err error
	outage := hubaccess.NewOutage(hub, o.HubOutageGrace, m.outage, m.pastAnswers)
	p.background = append(background, outage.Run)
	if p.authenticator, err = hubaccess.NewAuthenticator(hub, o.Audiences, outage); err != nil {
		return nil, err
	}
	if p.authorizer, err = hubaccess.NewAuthorizer(hub, outage, v); err != nil {
		return nil, err
	}
	exposed, err := newAllowlist(hub, o.Namespace, o.ExposedServices)
	if err != nil {
		return nil, err
	}
	p.services = exposed
	if err := o.Audit.ApplyTo(p.config); err != nil {
		return nil, fmt.Errorf("preparing the audit log: %w", err)
	}
	if err := o.Tracing.ApplyTo(nil, p.config); err != nil {
		return nil, fmt.Errorf("preparing traces: %w", err)
	}
	p.background = append(p.background, p.authenticator.Run, exposed.run, p.traces)
	if p.config.AuditBackend != nil {
		p.background = append(p.background, p.audit)
	}
	return p, nil
}

// audit lets the audit backends write until ctx is done, and what they have
// after that.
func (p *parts) audit(ctx context.Context) error {
	if err := p.config.AuditBackend.Run(ctx.Done()); err != nil {
		return fmt.Errorf("starting the audit log: %w", err)
	}
	<-ctx.Done()
	p.config.AuditBackend.Shutdown()
	return nil
}

// traces sends what is left of them at the end.
func (p *parts) traces(ctx context.Context) error {
	<-ctx.Done()
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), cutOff)
	defer cancel()
	if err := p.config.TracerProvider.Shutdown(limited); err != nil {
		klog.FromContext(ctx).Info("The last traces could not be sent", "err", err.Error())
	}
	return nil
}
