package authz

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"open-cluster-management.io/cluster-proxy/test/testkit/hubapi"
)

// TestRightsBySet has rights to clusters by name, by set, and by both, for one cluster
// and for lists. A right to one thing is none to another.
func TestRightsBySet(t *testing.T) {
	list, remove := Right{Verb: "list"}, Right{Verb: "delete"}
	for name, tc := range map[string]struct {
		rules  []string
		rights []Right
		want   []string
	}{
		"none":                      {rights: []Right{list}},
		"all":                       {rules: []string{"jane list clusters/proxy *"}, rights: []Right{list}, want: []string{"a", "b", "c", "d"}},
		"by name":                   {rules: []string{"jane list clusters/proxy b"}, rights: []Right{list}, want: []string{"b"}},
		"by set":                    {rules: []string{"jane list clustersets/proxy prod"}, rights: []Right{list}, want: []string{"a", "b"}},
		"by any set":                {rules: []string{"jane list clustersets/proxy *"}, rights: []Right{list}, want: []string{"a", "b", "c"}},
		"by set and name":           {rules: []string{"jane list clustersets/proxy test", "jane list clusters/proxy d"}, rights: []Right{list}, want: []string{"b", "c", "d"}},
		"another verb":              {rules: []string{"jane list clustersets/proxy *", "jane list clusters/proxy *"}, rights: []Right{remove}},
		"a set with a cluster name": {rules: []string{"jane list clustersets/proxy a"}, rights: []Right{list}},
		"a cluster with a set name": {rules: []string{"jane list clusters/proxy prod"}, rights: []Right{list}},
		"no streams":                {rules: []string{"jane * clustersets/proxy *", "jane * clusters/proxy *"}, rights: []Right{list, Streams}},
		"streams alone":             {rules: []string{"jane * clustersets/stream *", "jane * clusters/stream *"}, rights: []Right{list, Streams}},
		"streams by set":            {rules: []string{"jane list clusters/proxy *", "jane create clustersets/stream test"}, rights: []Right{list, Streams}, want: []string{"b", "c"}},
		"streams by name":           {rules: []string{"jane list clustersets/proxy prod", "jane create clusters/stream b"}, rights: []Right{list, Streams}, want: []string{"b"}},
		"another user":              {rules: []string{"bob list clustersets/proxy *"}, rights: []Right{list}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := startDeciding(t)
				d.sets = fakeSets{"prod": {"a", "b"}, "test": {"b", "c"}, "empty": nil}
				d.api.Allow(tc.rules...)
				jane := &user.DefaultInfo{Name: "jane"}
				clusters := []string{"d", "c", "b", "a"}
				got, _, err := d.authorizer.Reachable(t.Context(), jane, tc.rights, slices.Clone(clusters))
				if diff := cmp.Diff(strings.Join(tc.want, " "), strings.Join(got, " ")); diff != "" || err != nil {
					t.Errorf("Reachable: %v (-want +got):\n%s", err, diff)
				}
				for _, cluster := range append(clusters, "nowhere") {
					all := true
					for _, right := range tc.rights {
						decision, _, err := d.authorizer.AuthorizeCluster(t.Context(), jane, right, cluster)
						if err != nil {
							t.Error(err)
						}
						all = all && decision == authorizer.DecisionAllow
					}
					// A name that is no cluster's is allowed where all names are.
					want := slices.Contains(tc.want, cluster) || cluster == "nowhere" && name == "all"
					if all != want {
						t.Errorf("AuthorizeCluster of %q: %t, want %t", cluster, all, want)
					}
				}
			})
		})
	}
}

// TestDeniedClustersLookTheSame has the hub asked the same about a cluster that is not
// there, one that is, and one in a set.
func TestDeniedClustersLookTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.sets = fakeSets{"prod": {"a"}, "test": {"b"}}
		asked := map[string][]string{}
		for _, cluster := range []string{"a", "c", "nowhere"} {
			d.api.Set(func(h *hubapi.Hub) { h.Asked = nil })
			if decision, _, err := d.authorizer.AuthorizeCluster(t.Context(), &user.DefaultInfo{Name: "jane"}, Right{Verb: "get"}, cluster); decision == authorizer.DecisionAllow || err != nil {
				t.Errorf("%q: %v, %v; want it to be denied", cluster, decision, err)
			}
			d.api.Lock()
			for _, question := range d.api.Asked {
				asked[cluster] = append(asked[cluster], strings.Replace(question, "clusters/proxy "+cluster, "clusters/proxy CLUSTER", 1))
			}
			d.api.Unlock()
			slices.Sort(asked[cluster])
			time.Sleep(2 * decisionTTL)
		}
		want := []string{"jane get clusters/proxy CLUSTER", "jane get clustersets/proxy prod", "jane get clustersets/proxy test"}
		for cluster, got := range asked {
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("asked about %q (-want +got):\n%s", cluster, diff)
			}
		}
	})
}

// TestSetsThatAreNotKnown has a user without a right by name, while the sets have not
// been read: that is no refusal.
func TestSetsThatAreNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.authorizer.sets = unreadSets{}
		d.api.Allow("root * clusters/proxy *")
		if _, _, err := d.authorizer.AuthorizeCluster(t.Context(), &user.DefaultInfo{Name: "jane"}, Right{Verb: "get"}, "a"); err == nil {
			t.Error("jane: no error")
		}
		if decision, _, err := d.authorizer.AuthorizeCluster(t.Context(), &user.DefaultInfo{Name: "root"}, Right{Verb: "get"}, "a"); decision != authorizer.DecisionAllow || err != nil {
			t.Errorf("root: %v, %v; want it to be allowed", decision, err)
		}
	})
}

type unreadSets struct{}

func (unreadSets) Sets() ([]string, error) { return nil, errors.New("not read yet") }
func (unreadSets) Containing([]string) func(string) []string {
	return func(string) []string { return nil }
}

// TestRightsBySetEndInTime has a right to a set withdrawn while lists and single clusters
// are asked for at every moment.
func TestRightsBySetEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.sets = fakeSets{"prod": {"a", "b"}}
		d.api.Allow("jane get clustersets/proxy prod")
		jane, get := &user.DefaultInfo{Name: "jane"}, Right{Verb: "get"}
		may := func() bool {
			decision, _, _ := d.authorizer.AuthorizeCluster(t.Context(), jane, get, "a")
			return decision == authorizer.DecisionAllow
		}
		reaches := func() bool {
			got, _, _ := d.authorizer.Reachable(t.Context(), jane, []Right{get}, []string{"a", "b"})
			return len(got) > 0
		}
		if !may() {
			t.Error("before: denied")
		}
		time.Sleep(decisionTTL - time.Millisecond) // the answers about sets are old by now
		if !reaches() {
			t.Error("before: in no list")
		}
		d.api.Set(func(h *hubapi.Hub) { h.Rules = nil })
		time.Sleep(decisionTTL + time.Millisecond)
		if may() || reaches() {
			t.Errorf("%s after the right ended it is allowed: single %t, in a list %t", decisionTTL, may(), reaches())
		}
	})
}

// TestUsableViews has views in no list for those who may not list views.
func TestUsableViews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := startDeciding(t)
		d.api.Allow("jane list fleetviews *", "jane get fleetviews b", "jane get fleetviews a", "bob get fleetviews *", "root * fleetviews *")
		for name, want := range map[string]struct {
			views string
			ok    bool
		}{"jane": {"a b", true}, "bob": {"", false}, "root": {"a b c", true}, "none": {"", false}} {
			got, ok, err := d.authorizer.UsableViews(t.Context(), &user.DefaultInfo{Name: name}, []string{"c", "b", "a"})
			if strings.Join(got, " ") != want.views || ok != want.ok || err != nil {
				t.Errorf("%s: %v, %t, %v; want %q, %t", name, got, ok, err, want.views, want.ok)
			}
		}
	})
}
