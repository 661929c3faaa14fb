package cli_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"open-cluster-management.io/cluster-proxy/pkg/agentclient"
	clusterproxy "open-cluster-management.io/cluster-proxy/pkg/apis/clusterproxy/v1alpha1"
	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/pkg/tunnel"
	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// TestHops wants a remedy for the hop that failed, by the words of the proxy API itself.
func TestHops(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"no agent":        {&tunnel.Error{Code: tunnel.NoAgent}, "the tunnel is missing; on that cluster: kubectl"},
		"no proxy server": {&tunnel.Error{Code: tunnel.NoProxyServer}, "on the hub, between the proxy API and the proxy servers"},
		"draining":        {&tunnel.Error{Code: tunnel.Draining}, "check c1 --wait=1m"},
		"interrupted":     {context.Canceled, "check c1 --wait=1m"},
		"full":            {errors.New("memory"), "raises"},
		"no handler":      {&tunnel.Error{Code: tunnel.Unreachable}, "what is behind it fails"},
		"late":            {&tunnel.Error{Code: tunnel.TimedOut}, "does not answer in time"},
		"overloaded":      {&tunnel.Error{Code: tunnel.Overloaded}, "proxyAPI.limits"},
	} {
		code, message := agentclient.StatusOf(test.err, "c1", time.Time{})
		if name == "full" {
			code, message = 503, "proxy API pod p uses 82 % of its memory limit of 256Mi and takes nothing new: try again, or raise it"
		}
		reason := metav1.StatusReasonServiceUnavailable
		if code == 429 {
			reason = metav1.StatusReasonTooManyRequests
		}
		status := clitest.StatusOf(int32(code), reason, "", message)
		if _, got := cli.HopOf(&apierrors.StatusError{ErrStatus: status}, "c1"); !strings.Contains(got, test.want) {
			t.Errorf("%s: %d %q: the remedy is %q, want %q in it", name, code, message, got, test.want)
		}
	}
}

// TestRemedyOfWhatIsNotThere does not send people to check, which finds nothing: the cluster has answered.
func TestRemedyOfWhatIsNotThere(t *testing.T) {
	err := &apierrors.StatusError{ErrStatus: clitest.StatusOf(404, metav1.StatusReasonNotFound, "", `pods "shop-0" not found`)}
	if got := cli.RemedyOf(err, "c1"); strings.Contains(got, "check") || !strings.Contains(got, "cluster c1 answers") {
		t.Errorf("got %q, want that the cluster answers", got)
	}
}

// TestRemedyOfAPass does not advise an administrator to give the account of a pass more rights.
func TestRemedyOfAPass(t *testing.T) {
	for _, cluster := range []string{"", "c1"} {
		err := &apierrors.StatusError{ErrStatus: clitest.StatusOf(403, metav1.StatusReasonForbidden, clusterproxy.GroupVersion.Group,
			`clusters.clusterproxy.open-cluster-management.io is forbidden: User "system:serviceaccount:cluster-proxy-passes:ann-01234567" cannot list resource "clusters"`)}
		if got := cli.RemedyOf(err, cluster); strings.Contains(got, "clusterrolebinding") || !strings.Contains(got, "this is a pass") {
			t.Errorf("of cluster %q: %s", cluster, got)
		}
	}
	err := &apierrors.StatusError{ErrStatus: clitest.StatusOf(403, metav1.StatusReasonForbidden, "",
		`pods is forbidden: User "cluster:hub:system:serviceaccount:cluster-proxy-passes:ann-01234567" cannot list resource "pods"`)}
	if got := cli.RemedyOf(err, "c1"); !strings.Contains(got, "ask its owner to bind a role") {
		t.Errorf("of a refusal of the cluster: %s", got)
	}
}
