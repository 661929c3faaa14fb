package proxyapi

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authn"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authz"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/clusters"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/outage"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/apigroup"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/metrics"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
)

// cutOff is how long requests get to end after they were canceled, and the last traces to
// be sent.
const cutOff = 5 * time.Second

// parts are what a Server asks the hub with, and what runs beside requests.
type parts struct {
	clusters      scope.Clusters
	views         scope.Views
	authenticator *authn.Authenticator
	authorizer    *authz.Authorizer
	services      filter.Services
	policies      policies
	// karmada is nil if there is no such API.
	karmada *scope.Karmada
	config  *server.Config
	// background runs as long as requests do.
	background []func(context.Context) error
}

// policies are what the hub knows of AccessPolicies.
type policies interface {
	scope.Policies
	// Synced is an error until the hub's answer is complete.
	Synced() error
}

// viewsAndSets is what the hub knows about views, and about the sets that rights are for.
type viewsAndSets interface {
	scope.Views
	authz.ClusterSets
}

// newParts does no I/O but to read the files that options name.
func newParts(o *Options, m *metrics.Metrics, hub kubernetes.Interface, c scope.Clusters, v viewsAndSets, restrict policies, background ...func(context.Context) error) (*parts, error) {
	p := &parts{clusters: c, views: v, policies: restrict, config: apigroup.NewConfig()}
	var err error
	outage := outage.New(hub, o.HubOutageGrace, m.Outage, m.PastAnswers)
	p.background = append(background, outage.Run)
	if p.authenticator, err = authn.NewAuthenticator(hub, o.Audiences, outage); err != nil {
		return nil, err
	}
	if p.authorizer, err = authz.NewAuthorizer(hub, outage, v); err != nil {
		return nil, err
	}
	exposed, err := filter.NewAllowlist(hub, o.Namespace, o.ExposedServices)
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
	p.background = append(p.background, p.authenticator.Run, exposed.Run, p.traces)
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
		klog.FromContext(ctx).Error(err, "Sending the last traces")
	}
	return nil
}

// addKarmada adds what Karmada's API is served with.
func (p *parts) addKarmada(hub *rest.Config, served *clusters.Clusters, controlPlane string) error {
	watched, err := clusters.NewRegistries(hub, served)
	if err != nil {
		return err
	}
	store, err := apigroup.NewStore(hub)
	if err != nil {
		return err
	}
	p.karmada = &scope.Karmada{Registries: watched, Store: store, ControlPlane: controlPlane}
	p.background = append(p.background, watched.Run)
	return nil
}
