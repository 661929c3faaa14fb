package proxyapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/authz"
	"open-cluster-management.io/cluster-proxy/pkg/hubaccess/outage"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/filter"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/view"
	"open-cluster-management.io/cluster-proxy/pkg/status"
	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

// TestLateMembersAreAskedAgain has a right withdrawn while the hub takes long to say which
// clusters a user may reach: no request goes to the cluster after that.
func TestLateMembersAreAskedAgain(t *testing.T) {
	w := start(t)
	w.api.Allow("jane list clusters/proxy cluster1")
	hub := w.api.Client(t)
	authorizer, err := authz.NewAuthorizer(hub, outage.New(hub, 0, w.server.metrics.Outage, w.server.metrics.PastAnswers), &fakeViews{})
	if err != nil {
		t.Fatal(err)
	}
	info := &request.RequestInfo{Verb: "list"}
	q := &view.ViewRequest{Fleet: &view.Fleet{Filters: &filter.Filters{Authorizer: authorizer}}, Scope: &scope.Scope{Kind: scope.View, Info: info, Inner: info}}
	rs := &scope.Scope{Kind: scope.Cluster, Info: info, Inner: info, User: &user.DefaultInfo{Name: "jane"}, Target: route.Target{Cluster: "cluster1"}}
	prompt, late := &view.Member{ViewRequest: q, Cluster: "cluster1"}, &view.Member{ViewRequest: q, Cluster: "cluster1", AskAgain: true}
	asked := func() int {
		w.api.Lock()
		defer w.api.Unlock()
		return len(w.api.Asked)
	}
	before := asked()
	if err := prompt.MayAlso(t.Context(), rs); err != nil || asked() != before {
		t.Errorf("a member whose answer is fresh: %v, %d questions; want none", err, asked()-before)
	}
	w.api.Set(func(h *hubapi.Hub) { h.Rules = nil })
	err = late.MayAlso(t.Context(), rs)
	var refused *status.Error
	if !errors.As(err, &refused) || refused.ErrStatus.Code != http.StatusForbidden {
		t.Errorf("a late member of which the right was withdrawn: %v, want 403", err)
	}
	if resp, err := late.Refused(httptest.NewRequest(http.MethodGet, "/", nil), err); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("the view is told %v, %v; want 403", resp, err)
	}
}

// TestListsThatAreNotMade has lists for which the hub could not be asked, or not in time: clients
// are told to come again, when the list goes on.
func TestListsThatAreNotMade(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want string
	}{
		{errors.New("connection refused"), "the hub's kube-apiserver could not be asked which clusters you may reach: try again"},
		{fmt.Errorf("%w: %w", authz.ErrUnfinished, context.DeadlineExceeded), "the hub's kube-apiserver has not said in time which clusters you may reach: try again, it is asked about the rest then"},
	} {
		var status apierrors.APIStatus
		if !errors.As(scope.NotAsked(tc.err, "which clusters you may reach"), &status) {
			t.Fatal("no status")
		}
		if s := status.Status(); s.Code != http.StatusServiceUnavailable || s.Message != tc.want || s.Details == nil || s.Details.RetryAfterSeconds != 1 {
			t.Errorf("%v is answered %d %q %+v, want 503 %q and to come again after a second", tc.err, s.Code, s.Message, s.Details, tc.want)
		}
	}
}
