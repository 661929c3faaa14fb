// Package agentaddon tells OCM about the addon: how agents register and what is
// installed on a managed cluster.
//
// # Registration
//
// OCM's registration agent makes a key on the managed cluster and asks for a
// certificate with the subject that is set here. The request is approved only if it is
// exactly that and comes from the cluster's own OCM identity (approve.go), in the form
// of the way in which the cluster joined. The kube-apiserver authenticates the
// requester. For clusters that joined by OCM's gRPC server the requester is that
// server, which names the agent in an annotation; the annotations of other requesters
// are not read. The agent's group is unknown in this case, so its name alone counts:
// the check that group and name agree, which refuses requests of other clusters, cannot
// be made. The certificate is built from our template and takes nothing from the
// request but the public key (registration.go). In PortForward mode, and only then, the
// agent also gets a credential for the hub's kube-apiserver. The hub's own signer
// issues that one, for the term that the request asks for; more than 30 days are not
// approved. A request without a term, which OCM's agents may make, gets the
// kube-controller-manager's default. If OCM gives addons tokens, the credential is a
// token of an account that OCM makes (package proxyconfig).
//
// The subject has an organizational unit that names the CA which signs. It gives no
// rights. OCM's registration agent asks for a new certificate when the subject changes,
// so a rotated or restored agent CA reaches every cluster before certificates expire
// (unitsOf). A second one holds the UID of the ManagedCluster. The proxy API and the
// proxy servers compare it (package hubaccess/clusters), so that a cluster that takes over the
// name of an earlier one is not served by the earlier one's agent.
//
// The signer is not upstream's, because OCM names the Secret of the certificate on the
// managed cluster after it. With upstream's name, a new pod of upstream's agent could
// mount our certificate after a rollback: a kubelet fills each volume of a pod as soon
// as it can, and looks again a minute later. Upstream's agent reads its certificate
// once, so it would not connect until somebody restarts it. A pod whose Secret is not
// there waits. When the registration changes, OCM deletes the Secret of the former one.
// Pods that run keep its files, and can be restarted in place; a new pod of the former
// agent could not start any more, but the same change of the addon brings the Deployment
// that replaces it.
//
// # What is installed
//
// The chart in /manifests, with values made of a ManagedProxyConfiguration and, for a
// cluster, an AddOnDeploymentConfig. Values are a Go struct: no variable of a user
// becomes a chart value by its name. OCM writes into the addon's status which
// configurations those are. A cluster can write there too, so each must be named by
// spec.configs or by the ClusterManagementAddOn (references.go). Customized variables
// have a schema (variables.go). Those of upstream that have no effect here are
// accepted, and named in the condition VariablesIgnored of the ManagedClusterAddOn and
// in an event; enableImpersonation=false does have one, since it refuses users of the
// hub. An agent that upstream installed in OCM's default namespace stays there. The
// agent's namespace enforces no Pod Security standard, since other addons, and after a
// rollback pods of upstream's agent, may be in it. If manifests cannot be rendered, the
// condition ManifestApplied of the ManagedClusterAddOn says why, and the applied ones
// stay as they are.
//
// # Files
//
//	build.go         Build: what addon-framework asks for
//	registration.go  the certificates that agents ask for, and how they are signed
//	approve.go       which certificate signing requests are approved
//	once.go          renders once what is asked for twice in a row
//	values.go        where the values of the agent's chart come from, on the hub itself too
//	references.go    which configuration a cluster has, and whether its references are the hub's
//	variables.go     customized variables, by a schema
//	oidc.go          those for an OpenID Connect provider
//	exposed.go       the list of exposed Services
//	addon.go         Addon, and what it remembers
//	access.go        the role of users of the hub that the hub's chart names
//	chart.go         the values of the agent's chart
//	metrics.go       Metrics
package agentaddon
