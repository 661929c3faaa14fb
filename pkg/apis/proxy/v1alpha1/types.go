package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ManagedProxyConfiguration says how proxy servers run on the hub and how
// agents on managed clusters reach them. One of them, usually named
// cluster-proxy, is the default configuration of the ClusterManagementAddOn.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster
// +kubebuilder:printcolumn:name="Entrypoint",type=string,JSONPath=`.spec.proxyServer.entrypoint.type`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.spec.proxyServer.replicas`
// +kubebuilder:printcolumn:name="Deployed",type=string,JSONPath=`.status.conditions[?(@.type=="ProxyServerDeployed")].status`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="ConfigurationValid")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ManagedProxyConfiguration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   ManagedProxyConfigurationSpec   `json:"spec"`
	Status ManagedProxyConfigurationStatus `json:"status,omitempty"`
}

// ManagedProxyConfigurationList is a list of them.
//
// +kubebuilder:object:root=true
type ManagedProxyConfigurationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ManagedProxyConfiguration `json:"items"`
}

// ManagedProxyConfigurationSpec is what is wanted.
type ManagedProxyConfigurationSpec struct {
	// Authentication is about certificates.
	// +optional
	Authentication ManagedProxyConfigurationAuthentication `json:"authentication,omitempty"`
	// ProxyServer is about the proxy servers on the hub.
	ProxyServer ManagedProxyConfigurationProxyServer `json:"proxyServer"`
	// ProxyAgent is about the agents on the managed clusters.
	ProxyAgent ManagedProxyConfigurationProxyAgent `json:"proxyAgent"`
	// Deploy sets the ports of the proxy servers.
	// +optional
	Deploy *ManagedProxyConfigurationDeploy `json:"deploy,omitempty"`
	// UserServer is about the serving certificate of the proxy API.
	// +optional
	UserServer *ManagedProxyConfigurationUserServer `json:"userServer,omitempty"`
}

// ManagedProxyConfigurationAuthentication is about certificates.
type ManagedProxyConfigurationAuthentication struct {
	// Signer says where the two CAs come from.
	// +optional
	Signer ManagedProxyConfigurationCertificateSigner `json:"signer,omitempty"`
	// Dump names the Secrets of certificates.
	// +optional
	Dump ManagedProxyConfigurationCertificateDump `json:"dump,omitempty"`
}

// AuthenticationSignerType is where the hub CA and the agent CA come from.
// +kubebuilder:validation:Enum=SelfSigned;Provided;CertManager
type AuthenticationSignerType string

// The signer types.
const (
	// SelfSigned makes the CAs, keeps them in Secrets and rotates them.
	SelfSigned AuthenticationSignerType = "SelfSigned"
	// Provided takes the CAs from Secrets that the administrator keeps.
	Provided AuthenticationSignerType = "Provided"
	// CertManager asks cert-manager for them.
	CertManager AuthenticationSignerType = "CertManager"
)

// ManagedProxyConfigurationCertificateSigner says where the two CAs come from.
// Whenever one is another than before, whatever the reason, the change is staged:
// both are trusted, then everything is issued again, then the old one is
// dropped, not before every cluster has moved.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'Provided' || has(self.provided)",message="provided is required when type is Provided"
type ManagedProxyConfigurationCertificateSigner struct {
	// Type of the signer: SelfSigned, Provided or CertManager.
	// +optional
	// +kubebuilder:default=SelfSigned
	Type AuthenticationSignerType `json:"type,omitempty"`
	// SelfSigned belongs to type SelfSigned. Its names are in the certificates of
	// the proxy servers with every type.
	// +optional
	SelfSigned *AuthenticationSelfSigned `json:"selfSigned,omitempty"`
	// Provided belongs to type Provided.
	// +optional
	Provided *ManagedProxyConfigurationProvided `json:"provided,omitempty"`
	// CertManager belongs to type CertManager.
	// +optional
	CertManager *ManagedProxyConfigurationCertManager `json:"certManager,omitempty"`
}

// ManagedProxyConfigurationProvided belongs to signer type Provided.
//
// +kubebuilder:validation:XValidation:rule="self.hubCASecretName != self.agentCASecretName",message="the hub CA and the agent CA must be two"
type ManagedProxyConfigurationProvided struct {
	// HubCASecretName is the name of a Secret in the proxy servers' namespace with
	// the hub CA's certificate and key, as tls.crt and tls.key or as ca.crt and
	// ca.key.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	HubCASecretName string `json:"hubCASecretName"`
	// AgentCASecretName is that of the agent CA.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	AgentCASecretName string `json:"agentCASecretName"`
}

// ManagedProxyConfigurationCertManager belongs to signer type CertManager.
type ManagedProxyConfigurationCertManager struct {
	// IssuerRef is the issuer that signs both CAs. Without it an Issuer is made,
	// by which they sign themselves.
	// +optional
	IssuerRef *CertManagerIssuerReference `json:"issuerRef,omitempty"`
}

// CertManagerIssuerReference refers to an issuer as cert-manager does.
type CertManagerIssuerReference struct {
	// Name of the issuer. An Issuer is in the proxy servers' namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Kind is Issuer, ClusterIssuer or an external one; empty means Issuer.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Group of an external issuer; empty means cert-manager.io.
	// +optional
	Group string `json:"group,omitempty"`
}

// AuthenticationSelfSigned belongs to signer type SelfSigned.
type AuthenticationSelfSigned struct {
	// AdditionalSANs are further names and IP addresses in the certificates of
	// the proxy servers.
	// +optional
	AdditionalSANs []string `json:"additionalSANs,omitempty"`
}

// ManagedProxyConfigurationCertificateDump names the Secrets of certificates.
type ManagedProxyConfigurationCertificateDump struct {
	// +optional
	Secrets CertificateSigningSecrets `json:"secrets,omitempty"`
}

// CertificateSigningSecrets are names of Secrets in the proxy servers'
// namespace.
type CertificateSigningSecrets struct {
	// SigningProxyServerSecretName is that of the client port's certificate.
	// +optional
	// +kubebuilder:default=proxy-server
	SigningProxyServerSecretName string `json:"signingProxyServerSecretName,omitempty"`
	// SigningProxyClientSecretName is that of the clients' certificate.
	// +optional
	// +kubebuilder:default=proxy-client
	SigningProxyClientSecretName string `json:"signingProxyClientSecretName,omitempty"`
	// SigningAgentServerSecretName is that of the agent port's certificate.
	// +optional
	// +kubebuilder:default=agent-server
	SigningAgentServerSecretName string `json:"signingAgentServerSecretName,omitempty"`
}

// ManagedProxyConfigurationProxyServer is about the proxy servers on the hub.
type ManagedProxyConfigurationProxyServer struct {
	// Image of the proxy servers.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
	// Replicas is how many proxy servers run. Every agent connects to every one.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Replicas int32 `json:"replicas,omitempty"`
	// InClusterServiceName is the name of the Service for clients and agents
	// within the hub.
	// +optional
	// +kubebuilder:default=proxy-entrypoint
	// +kubebuilder:validation:MaxLength=63
	InClusterServiceName string `json:"inClusterServiceName,omitempty"`
	// Namespace of the proxy servers.
	// +optional
	// +kubebuilder:default=open-cluster-management-cluster-proxy
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
	// Entrypoint is how agents reach the proxy servers. Without one they use a
	// port-forward of the hub's kube-apiserver.
	// +optional
	Entrypoint *ManagedProxyConfigurationProxyServerEntrypoint `json:"entrypoint,omitempty"`
	// AdditionalArgs are further arguments of the proxy servers. A flag that is
	// set already is overridden.
	// +optional
	AdditionalArgs []string `json:"additionalArgs,omitempty"`
	// NodePlacement says on which nodes proxy servers run.
	// +optional
	NodePlacement NodePlacement `json:"nodePlacement,omitempty"`
}

// NodePlacement says on which nodes pods run.
type NodePlacement struct {
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// +optional
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// EntryPointType is how agents reach the proxy servers.
// +kubebuilder:validation:Enum=Hostname;LoadBalancerService;PortForward
type EntryPointType string

// The entrypoints.
const (
	// EntryPointTypeHostname is a name or an IP address that leads to the agent
	// port; how it does is the administrator's business.
	EntryPointTypeHostname EntryPointType = "Hostname"
	// EntryPointTypeLoadBalancerService makes a Service of type LoadBalancer for
	// the agent port.
	EntryPointTypeLoadBalancerService EntryPointType = "LoadBalancerService"
	// EntryPointTypePortForward needs nothing but the hub's kube-apiserver.
	EntryPointTypePortForward EntryPointType = "PortForward"
)

// ManagedProxyConfigurationProxyServerEntrypoint is how agents reach the proxy
// servers.
//
// +kubebuilder:validation:XValidation:rule="self.type != 'Hostname' || has(self.hostname)",message="hostname.value is required when type is Hostname"
type ManagedProxyConfigurationProxyServerEntrypoint struct {
	// Type is Hostname, LoadBalancerService or PortForward.
	Type EntryPointType `json:"type"`
	// LoadBalancerService belongs to type LoadBalancerService.
	// +optional
	LoadBalancerService *EntryPointLoadBalancerService `json:"loadBalancerService,omitempty"`
	// Hostname belongs to type Hostname.
	// +optional
	Hostname *EntryPointHostname `json:"hostname,omitempty"`
	// Port that agents dial. With LoadBalancerService it is the Service's port.
	// +optional
	// +kubebuilder:default=8091
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// EntryPointLoadBalancerService belongs to type LoadBalancerService.
type EntryPointLoadBalancerService struct {
	// Name of the Service.
	// +optional
	// +kubebuilder:default=proxy-agent-entrypoint
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name,omitempty"`
	// Annotations of the Service, by which cloud providers are told more.
	// +optional
	Annotations []AnnotationVar `json:"annotations,omitempty"`
}

// AnnotationVar is one annotation.
type AnnotationVar struct {
	// Key of the annotation.
	// +kubebuilder:validation:MinLength=1
	Key string `json:"key"`
	// Value of the annotation.
	// +optional
	Value string `json:"value,omitempty"`
}

// EntryPointHostname belongs to type Hostname.
type EntryPointHostname struct {
	// Value is a DNS name or an IP address.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Value string `json:"value"`
}

// ManagedProxyConfigurationProxyAgent is about the agents on the managed
// clusters.
type ManagedProxyConfigurationProxyAgent struct {
	// Image of the agents.
	// +kubebuilder:validation:MinLength=1
	Image string `json:"image"`
	// Replicas is how many agents run on each cluster.
	// +optional
	// +kubebuilder:default=3
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	Replicas int32 `json:"replicas,omitempty"`
	// AdditionalArgs are further arguments of the agents. A flag that is set
	// already is overridden.
	// +optional
	AdditionalArgs []string `json:"additionalArgs,omitempty"`
	// AdditionalServiceProxyArgs were arguments of upstream's service proxy,
	// which is part of the agent now: those that the agent has are passed on,
	// others are refused.
	// +optional
	AdditionalServiceProxyArgs []string `json:"additionalServiceProxyArgs,omitempty"`
	// ImagePullSecrets are names of Secrets in the agents' namespace.
	// +optional
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// AdditionalServiceCAConfigMap names a ConfigMap in the agents' namespace
	// whose key service-ca.crt holds CAs that certificates of exposed Services
	// are verified with, besides the managed cluster's own CA.
	// +optional
	AdditionalServiceCAConfigMap string `json:"additionalServiceCAConfigMap,omitempty"`
}

// ManagedProxyConfigurationDeploy sets how proxy servers are deployed.
type ManagedProxyConfigurationDeploy struct {
	// +optional
	Ports ManagedProxyConfigurationDeployPorts `json:"ports,omitempty"`
}

// ManagedProxyConfigurationDeployPorts are the ports of the proxy servers'
// processes. Services keep theirs.
//
// +kubebuilder:validation:XValidation:rule="self.proxyServer != self.agentServer && self.proxyServer != self.healthServer && self.proxyServer != self.adminServer && self.agentServer != self.healthServer && self.agentServer != self.adminServer && self.healthServer != self.adminServer",message="proxyServer, agentServer, healthServer and adminServer must be four different ports"
type ManagedProxyConfigurationDeployPorts struct {
	// +optional
	// +kubebuilder:default=8090
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=49151
	ProxyServer int32 `json:"proxyServer,omitempty"`
	// +optional
	// +kubebuilder:default=8091
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=49151
	AgentServer int32 `json:"agentServer,omitempty"`
	// +optional
	// +kubebuilder:default=8092
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=49151
	HealthServer int32 `json:"healthServer,omitempty"`
	// +optional
	// +kubebuilder:default=8095
	// +kubebuilder:validation:Minimum=1024
	// +kubebuilder:validation:Maximum=49151
	AdminServer int32 `json:"adminServer,omitempty"`
}

// ManagedProxyConfigurationUserServer is about the serving certificate of the
// proxy API.
type ManagedProxyConfigurationUserServer struct {
	// AdditionalSANs are further names and IP addresses in it.
	// +optional
	AdditionalSANs []string `json:"additionalSANs,omitempty"`
}

// Types of conditions.
const (
	// ConditionTypeConfigurationValid is False while the configuration asks for
	// something that cannot be; what was deployed before stays.
	ConditionTypeConfigurationValid = "ConfigurationValid"
	// ConditionTypeConfigurationIgnored is True while the configuration has settings of
	// upstream that mean nothing here.
	ConditionTypeConfigurationIgnored = "ConfigurationIgnored"
	// ConditionTypeProxyServerDeployed is True while a proxy server is available.
	ConditionTypeProxyServerDeployed = "ProxyServerDeployed"
	// The conditions of certificates say until when they are valid.
	ConditionTypeProxyServerSecretSigned = "ProxyServerSecretSigned"
	ConditionTypeAgentServerSecretSigned = "AgentServerSecretSigned"
	ConditionTypeProxyClientSecretSigned = "ProxyClientSecretSigned"
	ConditionTypeUserServerSecretSigned  = "UserServerSecretSigned"
	// ConditionTypeSignerReady is False while a CA cannot be had from where the signer
	// says; the certificates that are there stay in use.
	ConditionTypeSignerReady = "SignerReady"
	// The conditions of rotations are True while the CA is being changed. The
	// reason is the phase (Stable, Distributing, Reissuing), the message says
	// until when the CA is valid and which clusters are waited for.
	ConditionTypeHubCARotating   = "HubCARotating"
	ConditionTypeAgentCARotating = "AgentCARotating"
)

// RotateAnnotation on a ManagedProxyConfiguration asks for a rotation of both CAs
// each time its value changes. Any text will do, for example the date. It belongs
// to signer type SelfSigned.
const RotateAnnotation = "proxy.open-cluster-management.io/rotate-ca"

// ManagedProxyConfigurationStatus is what is.
type ManagedProxyConfigurationStatus struct {
	// LastObservedGeneration is the generation that conditions are about.
	// +optional
	LastObservedGeneration int64 `json:"lastObservedGeneration,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
