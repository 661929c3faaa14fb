package proxyconfig

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/cluster-proxy/pkg/addonmanager/certificates"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
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

func (r *Reconciler) event(c runtime.Object, reason, message string, args ...any) {
	if r.Events != nil {
		r.Events.Eventf(c, nil, corev1.EventTypeNormal, reason, "Rotate", message, args...)
	}
}
