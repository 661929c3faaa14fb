// Package agentaddon is what OCM needs to know of the addon: how agents register
// and what is installed on a managed cluster.
//
// # Registration
//
// OCM's registration agent makes a key on the managed cluster and asks for a
// certificate with the subject that is set here. The request is approved only if
// it is exactly that and comes from that cluster's own OCM identity
// (approve.go): the name of the way in which it joined. That is what the
// kube-apiserver says of the requester. Of clusters that joined by OCM's gRPC server
// it says that the server asks, which names the agent in an annotation; no other
// requester's annotation is read. There the agent's group is not known, so what OCM
// lets call itself a cluster's agent is one: a group that differs from the name,
// which refuses requests of other clusters, refuses none of these. The certificate is built from our template and takes nothing
// from the request but the public key (registration.go). In PortForward mode, and
// only then, the agent also gets a credential for the hub's kube-apiserver. That
// one the hub's own signer makes, for the term that the request asks for: it is
// not approved for more than 30 days. If OCM gives addons tokens, the credential is
// one of an account that OCM makes (package proxyconfig). A request without a term gets what the
// kube-controller-manager gives, and OCM's agents may make such requests.
//
// The subject has an organizational unit that names the CA which signs. It gives
// no rights; OCM's registration agent asks again when the subject that it is told
// changes, and so a rotated or restored agent CA reaches every cluster without
// waiting for certificates to end (unitsOf). A second one holds the UID of the
// ManagedCluster. The proxy API and the proxy servers compare it (package
// hubaccess), so that a cluster that takes over the name of an earlier one is not
// served by the earlier one's agent.
//
// # What is installed
//
// The chart in /manifests, with values made of a ManagedProxyConfiguration and,
// for a cluster, an AddOnDeploymentConfig. Values are a Go struct: nothing that
// a user writes becomes a chart value by its name. Which configurations those are
// OCM writes into the addon's status; since a cluster can write there too, each
// must be named by spec.configs or by the ClusterManagementAddOn (references.go).
// Customized variables have a
// schema (variables.go). Those of upstream that mean nothing here are taken, and said
// in the condition VariablesIgnored of the ManagedClusterAddOn and an event;
// enableImpersonation=false is not one of them, since it keeps users of the hub out.
// An agent that upstream installed in OCM's default namespace stays there. Nothing of
// Pod Security is enforced in the agent's namespace: other addons may be there, and
// pods of upstream's agent after a rollback. Whatever cannot be rendered is said in the condition
// ManifestApplied of the ManagedClusterAddOn, and the manifests that are there
// stay as they are.
//
// # Files
//
//	addon.go         Addon, and which configuration a cluster has
//	registration.go  the certificates that agents ask for, and how they are signed
//	approve.go       which certificate signing requests are approved
//	references.go    whether a cluster's references to configurations are the hub's
//	values.go        the values of the agent's chart
//	variables.go     customized variables, by a schema
//	oidc.go          those for an OpenID Connect provider
//	exposed.go       the list of exposed Services
//	hub.go           what is different where the managed cluster is the hub itself
//	metrics.go       Metrics
package agentaddon
