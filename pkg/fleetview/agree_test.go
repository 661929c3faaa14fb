package fleetview

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
)

// TestWatchOfUnlikelyKind goes on from a list of objects whose resource is not called like
// their kind. The list has said what they are, so that the first event of one cluster need not
// wait for the others.
func TestWatchOfUnlikelyKind(t *testing.T) {
	const networks = "/apis/k8s.cni.cncf.io/v1/namespaces/shop/network-attachment-definitions"
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", networks+"/x"), newCluster("b", networks+"/x")
		view := testView(a, b)
		listed, other := New(Options{}), New(Options{})
		at := listed.getList(t, view, networks).list.Metadata.ResourceVersion
		other.positions = listed.positions
		a.set(networks+"/new", nil)
		for h, want := range map[*Handler]int{listed: 1, other: 0} {
			got := h.request(t, view, http.MethodGet, fmt.Sprintf("%s?watch=true&timeoutSeconds=5&resourceVersion=%s", networks, at), "")
			if n := strings.Count(got.body, `"name":"new"`); n != want {
				t.Errorf("got %d %q within 5 s, want %d events", got.code, got.body, want)
			}
		}
	})
}
