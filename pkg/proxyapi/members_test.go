package proxyapi

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/hubaccess"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/route"
	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

// TestLateMembersAreAskedAgain has a right withdrawn while the hub takes long to say which
// clusters a user may reach: no request goes to the cluster after that.
func TestLateMembersAreAskedAgain(t *testing.T) {
	w := start(t)
	w.api.Allow("jane list clusters/proxy cluster1")
	hub := w.api.Client(t)
	authorizer, err := hubaccess.NewAuthorizer(hub, hubaccess.NewOutage(hub, 0, w.server.metrics.outage, w.server.metrics.pastAnswers), &fakeViews{})
	if err != nil {
		t.Fatal(err)
	}
	info := &request.RequestInfo{Verb: "list"}
	q := &viewRequest{fleet: &fleet{requestFilters: &requestFilters{authorizer: authorizer}}, scope: &requestScope{kind: viewScope, info: info, inner: info}}
	scope := &requestScope{kind: clusterScope, info: info, inner: info, user: &user.DefaultInfo{Name: "jane"}, target: route.Target{Cluster: "cluster1"}}
	prompt, late := &member{viewRequest: q, cluster: "cluster1"}, &member{viewRequest: q, cluster: "cluster1", askAgain: true}
	asked := func() int {
		w.api.Lock()
		defer w.api.Unlock()
		return len(w.api.Asked)
	}
	before := asked()
	if err := prompt.mayAlso(t.Context(), scope); err != nil || asked() != before {
		t.Errorf("a member whose answer is fresh: %v, %d questions; want none", err, asked()-before)
	}
	w.api.Set(func(h *hubapi.Hub) { h.Rules = nil })
	err = late.mayAlso(t.Context(), scope)
	var refused *hubaccess.RefusedError
	if !errors.As(err, &refused) || refused.Code != http.StatusForbidden {
		t.Errorf("a late member of which the right was withdrawn: %v, want 403", err)
	}
	if resp, err := late.refused(httptest.NewRequest(http.MethodGet, "/", nil), err); err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("the view is told %v, %v; want 403", resp, err)
	}
}
