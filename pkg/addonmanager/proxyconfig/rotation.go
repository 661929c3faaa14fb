package proxyconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// source is where a configuration's CAs come from; nil means that they are made
// here.
func (r *Reconciler) source(c *v1alpha1.ManagedProxyConfiguration) certificates.CASource {
	signer := c.Spec.Authentication.Signer
	switch signer.Type {
	case v1alpha1.Provided:
		return certificates.Provided{Client: r.Client, Namespace: r.Options.SignerNamespace, Secrets: map[certificates.CAName]string{
			certificates.HubCA: signer.Provided.HubCASecretName, certificates.AgentCA: signer.Provided.AgentCASecretName,
		}}
	case v1alpha1.CertManager:
		source := certificates.CertManager{Client: r.Client, Namespace: r.Options.SignerNamespace}
		if signer.CertManager != nil && signer.CertManager.IssuerRef != nil {
			issuer := signer.CertManager.IssuerRef
			source.IssuerName, source.IssuerKind, source.IssuerGroup = issuer.Name, issuer.Kind, issuer.Group
		}
		return source
	}
	return nil
}

// caSecrets are the names of the Secrets that a configuration's CAs come from
// and are kept in.
func (r *Reconciler) caSecrets(c *v1alpha1.ManagedProxyConfiguration) []string {
	names := []string{r.Options.SignerName, certificates.AgentSignerSecret, certificates.CertManagerHubCA, certificates.CertManagerAgentCA}
	if provided := c.Spec.Authentication.Signer.Provided; provided != nil {
		names = append(names, provided.HubCASecretName, provided.AgentCASecretName)
	}
	return names
}

// report says in conditions, metrics and events until when certificates are
// valid and how far rotations are. err is Ensure's.
func (r *Reconciler) report(c *v1alpha1.ManagedProxyConfiguration, params certificates.Params, issued certificates.Result, err error, set func(kind string, ok bool, reason, message string)) {
	for kind, name := range map[string]string{
		v1alpha1.ConditionTypeProxyServerSecretSigned: params.ProxyServerSecret,
		v1alpha1.ConditionTypeAgentServerSecretSigned: params.AgentServerSecret,
		v1alpha1.ConditionTypeProxyClientSecretSigned: params.ProxyClientSecret,
		v1alpha1.ConditionTypeUserServerSecretSigned:  certificates.UserServingSecret,
	} {
		expiry, ok := issued.Expiry[name]
		switch {
		case ok:
			set(kind, true, "SuccessfullySigned", "Expiry:"+expiry.UTC().Format(time.RFC3339))
		case err != nil:
			set(kind, false, "NotYetSigned", err.Error())
		default:
			set(kind, false, "NotProvided", fmt.Sprintf("without spec.userServer, Secret %q with the certificate of the proxy API is yours to make", name))
		}
	}
	if issued.SignerError != nil {
		set(v1alpha1.ConditionTypeSignerReady, false, "NotReady", issued.SignerError.Error())
	} else {
		set(v1alpha1.ConditionTypeSignerReady, true, "Ready", "both CAs exist")
	}
	for name, expiry := range issued.Expiry {
		r.Metrics.setExpiry(name, expiry)
	}
	for kind, ca := range map[string]certificates.CAName{v1alpha1.ConditionTypeHubCARotating: certificates.HubCA, v1alpha1.ConditionTypeAgentCARotating: certificates.AgentCA} {
		rotation, ok := issued.Rotations[ca]
		if !ok || rotation.Phase == "" {
			continue
		}
		set(kind, rotation.Phase != certificates.Stable, string(rotation.Phase), rotation.Message())
		r.Metrics.setRotation(ca, rotation)
		if rotation.Moved {
			// Events of one reason are counted and not written again.
			reason := strings.TrimSuffix(kind, "Rotating") + string(rotation.Phase)
			r.event(c, reason, "The %s is now in phase %s; %s", ca, rotation.Phase, rotation.Message())
		}
	}
}

func (r *Reconciler) certificates(ctx context.Context, c *v1alpha1.ManagedProxyConfiguration) (certificates.Params, error) {
	secrets := c.Spec.Authentication.Dump.Secrets
	service, namespace := c.Spec.ProxyServer.InClusterServiceName, c.Spec.ProxyServer.Namespace
	names := []string{"127.0.0.1", "localhost", service, service + "." + namespace, service + "." + namespace + ".svc", service + "." + namespace + ".svc.cluster.local"}
	if self := c.Spec.Authentication.Signer.SelfSigned; self != nil {
		names = append(names, self.AdditionalSANs...)
	}
	host, _, err := AgentEntrypoint(ctx, r.Client, c)
	switch {
	case err == nil:
		names = append(names, host)
	case !errors.Is(err, errNoAddress) && !apierrors.IsNotFound(err):
		return certificates.Params{}, err
	}
	const api = identity.ProxyAPIService
	userNames := []string{"127.0.0.1", "localhost", api, api + "." + r.Options.Namespace, api + "." + r.Options.Namespace + ".svc", api + "." + r.Options.Namespace + ".svc.cluster.local"}
	if c.Spec.UserServer != nil {
		userNames = append(userNames, c.Spec.UserServer.AdditionalSANs...)
	}
	params := certificates.Params{
		SignerNamespace: r.Options.SignerNamespace, SignerName: r.Options.SignerName, Namespace: namespace, Owner: ownerOf(c),
		ProxyServerSecret: secrets.SigningProxyServerSecretName,
		AgentServerSecret: secrets.SigningAgentServerSecretName,
		ProxyClientSecret: secrets.SigningProxyClientSecretName,
		ServerNames:       names, UserServerNames: userNames, UserServerProvided: c.Spec.UserServer == nil, FleetIndex: r.Options.FleetIndex,
		Source: r.source(c), Request: c.Annotations[v1alpha1.RotateAnnotation],
		Checker: r.Checker, Propagation: r.Options.Propagation,
	}
	return params, nil
}
