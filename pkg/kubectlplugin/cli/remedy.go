package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/apis/proxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// refusedUser finds the user in a refusal of RBAC.
var refusedUser = regexp.MustCompile(`User "([^"\\]+)" cannot`)

// anybody stands for a user whom an error does not name.
const anybody = "USER"

// RefusedUser is the user whom a refusal of RBAC names, or USER.
func RefusedUser(err error) string {
	if found := refusedUser.FindStringSubmatch(err.Error()); found != nil {
		return found[1]
	}
	return anybody
}

// passAccounts begins the names of passes on the hub.
const passAccounts = "system:serviceaccount:" + identity.PassNamespace + ":"

// isRefusedByHub reports whether the hub refuses, and not a cluster: the hub refuses what is in the addon's groups,
// whatever the words are, and a cluster's RBAC never does.
func isRefusedByHub(err error) bool {
	var status *apierrors.StatusError
	if !apierrors.IsForbidden(err) || !errors.As(err, &status) || status.ErrStatus.Details == nil {
		return false
	}
	group := status.ErrStatus.Details.Group
	return group == clusterproxy.GroupVersion.Group || group == v1alpha1.GroupVersion.Group
}

// RemedyOf says what to do about an error of a request to a cluster, or to the hub if the
// cluster is empty.
func RemedyOf(err error, cluster string) string {
	user := RefusedUser(err)
	switch {
	case strings.HasPrefix(user, passAccounts) && (isRefusedByHub(err) || cluster == ""):
		return "this is a pass, which may send requests to its clusters and view and may not list clusters or read anything else on the hub: use its contexts, as in kubectl --context CLUSTER get pods; kubectl config get-contexts shows them"
	case isRefusedByHub(err):
		return fmt.Sprintf("the hub refuses: ask an administrator of the hub to run: kubectl create clusterrolebinding NAME --clusterrole=cluster-proxy-user --user=%q (or cluster-proxy-viewer, to read)", user)
	case apierrors.IsForbidden(err) && cluster == "":
		return "you lack a right on the hub, which the message names: ask an administrator of the hub"
	case apierrors.IsForbidden(err) && user == anybody: // RBAC names the user
		return fmt.Sprintf("cluster %s refuses, by a rule of its own or of its owner for what comes from the hub, which the message names: ask its owner", cluster)
	case apierrors.IsForbidden(err):
		return fmt.Sprintf("the RBAC of cluster %s refuses user %q: ask its owner to bind a role there, for example: kubectl create clusterrolebinding NAME --clusterrole=view --user=%q", cluster, user, user)
	case apierrors.IsUnauthorized(err):
		return "your credential for the hub is not valid: look at it with kubectl auth whoami"
	case apierrors.IsTooManyRequests(err):
		return "wait, or end some of what you have open; if it is a limit of the proxy API, the message says its value and which of the chart's values proxyAPI.limits raises it"
	case apierrors.IsNotFound(err) && cluster != "":
		return fmt.Sprintf("cluster %s answers, and has no such object: look at the name and the namespace", cluster)
	case cluster == "":
		return "look at your kubeconfig and at the network to the hub" + CheckSaysMore
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Sprintf("nothing came within %s; kubectl clusterproxy check %s says which part of the way fails", ProbeTimeout, cluster)
	}
	return "kubectl clusterproxy check " + cluster + " says which part of the way fails"
}

// ProbeTimeout bounds one request to a cluster.
const ProbeTimeout = 15 * time.Second

// CheckSaysMore is what check does not say of itself.
const CheckSaysMore = "; kubectl clusterproxy check says more"

// Hop is the part of the way to a cluster that fails; empty for one that is not known, or the
// hub's.
type Hop string

const (
	HopHub         Hop = "hub"    // no proxy server answers
	HopTunnel      Hop = "tunnel" // there is none
	HopBehindAgent Hop = "behind the agent"
	HopSilent      Hop = "silent" // it may be any of them
)

// HopOf returns the hop to the cluster that failed, by the code of the answer, and what to do
// there.
func HopOf(err error, cluster string) (failed Hop, remedy string) {
	code := 0
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		code = int(status.Status().Code)
	}
	switch code {
	case http.StatusServiceUnavailable:
		return hopOfUnavailable(err.Error(), cluster)
	case http.StatusBadGateway:
		return HopBehindAgent, "the tunnel is there, and what is behind it fails: look at the kube-apiserver of that cluster, and at what its agent says: " + agentLogs
	case http.StatusGatewayTimeout:
		return HopSilent, "a proxy server, the agent or its kube-apiserver does not answer in time: look at the load of that cluster and at the network to the hub"
	case http.StatusForbidden, http.StatusUnauthorized, http.StatusTooManyRequests:
		return "", RemedyOf(err, cluster)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return HopSilent, fmt.Sprintf("nothing came within %s: the hub, or something on the way to the cluster, is silent", ProbeTimeout)
	}
	return "", fmt.Sprintf("kubectl clusterproxy bundle %s collects what somebody else needs to find out", cluster)
}

const (
	agentLogs = "kubectl -n open-cluster-management-cluster-proxy logs deploy/cluster-proxy-proxy-agent"
	// HubPods is the command that shows the pods of the addon's parts on the hub.
	HubPods = "kubectl get pods -A -l open-cluster-management.io/addon=cluster-proxy"
)

// hopOfUnavailable tells the hops by the words of 503: package agentclient has most of them.
func hopOfUnavailable(message, cluster string) (failed Hop, remedy string) {
	switch {
	case strings.Contains(message, "no agent of cluster"):
		return HopTunnel, fmt.Sprintf("the tunnel is missing; on that cluster: %s; in its place: kubectl clusterproxy bundle %s --cluster-kubeconfig FILE", agentLogs, cluster)
	case strings.Contains(message, "proxy server cannot be reached"):
		return HopHub, "the fault is on the hub, between the proxy API and the proxy servers; there: " + HubPods
	case strings.Contains(message, "memory limit"):
		return "", "a pod on the way is full: the message names it, and what raises its limit"
	case strings.Contains(message, "try again"):
		return "", fmt.Sprintf("a part of the way restarts; kubectl clusterproxy check %s --wait=1m says whether that ends", cluster)
	}
	return "", fmt.Sprintf("something on the way to the cluster is not available; kubectl clusterproxy bundle %s collects what somebody else needs to find out", cluster)
}
