package fleetindexer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
)

// TestWordsOfOthers searches by texts that only rows have which the caller may not see. The answers are those to texts that nothing has.
func TestWordsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		theirs := printed("bank", "vault-0")
		theirs.Labels, theirs.Owner, theirs.Node, theirs.Images = map[string]string{"team": "vault"}, "ReplicaSet/vault", "vault", []string{"registry/vault:1"}
		theirs.Cells = json.RawMessage(`["vault-0","1/1","vault","0",null,"vault"]`)
		f.put(t, "a", printed("shop", "web-0"), theirs)
		theirs.Namespace = "shop"
		f.put(t, "b", theirs) // in a namespace of that name, elsewhere
		f.put(t, "c", theirs) // where the caller was never decided about
		f.clusters.decide["a"], f.clusters.decide["b"], f.clusters.fails["c"] = only("shop"), deny, errAway
		told := func(template, word string) (all string) {
			request := indexapi.SearchRequest{Caller: jane, Query: fmt.Sprintf(template, word), Clusters: asked("a", "b", "c"), Limit: 1}
			all = f.post(t, indexapi.SearchPath, request).Body.String()
			for _, by := range query.Counted {
				all += f.post(t, indexapi.CountPath, indexapi.CountRequest{SearchRequest: request, By: []string{string(by)}}).Body.String()
			}
			return strings.ReplaceAll(all, word, "")
		}
		for _, template := range []string{"%s", "%s*", `"registry %s"`, "label:team=%s", "image:registry/%s", "node:%s", "name:%s-*", "status:%s", "namespace:shop %s", "namespace:bank name:%s-0", "cluster:c %s"} {
			if with, without := told(template, "vault"), told(template, "fault"); with != without || strings.Contains(with, "web-0") {
				t.Errorf("%s: got\n%s\nand of a word that nothing has\n%s", template, with, without)
			}
		}
	})
}

// TestTokensOfOthers goes on with somebody else's pages, and with one's own after the right was taken away.
func TestTokensOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "a", printed("shop", "web-0"), printed("shop", "web-1"), printed("shop", "web-2"))
		page := func(as indexapi.Caller, text, token string) (int, indexapi.SearchAnswer) {
			w := f.post(t, indexapi.SearchPath, indexapi.SearchRequest{Caller: as, Query: text, Clusters: asked("a"), Limit: 1, Continue: token})
			var answer indexapi.SearchAnswer
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatal(err, w.Body)
			}
			return w.Code, answer
		}
		code, first := page(jane, "web", "")
		if code != http.StatusOK || first.Continue == "" {
			t.Fatal(code, first)
		}
		joe := indexapi.Caller{Name: "joe", Groups: jane.Groups}
		for name, code := range map[string]func() (int, indexapi.SearchAnswer){
			"another user":   func() (int, indexapi.SearchAnswer) { return page(joe, "web", first.Continue) },
			"another search": func() (int, indexapi.SearchAnswer) { return page(jane, "nginx", first.Continue) },
			"no token":       func() (int, indexapi.SearchAnswer) { return page(jane, "web", strings.Repeat("A", 1<<20)) },
		} {
			if got, answer := code(); got != http.StatusGone || len(answer.Hits) != 0 {
				t.Errorf("%s: got %d, %+v", name, got, answer)
			}
		}
		f.clusters.decide["a"] = deny
		time.Sleep(freshFor)
		if code, answer := page(jane, "web", first.Continue); code != http.StatusOK || len(answer.Hits) != 0 || answer.Continue != "" {
			t.Errorf("after the right was taken away: got %d, %+v", code, answer)
		}
		if got := f.count(t, "web", "a").Total; got != 0 {
			t.Errorf("after the right was taken away: counted %d", got)
		}
	})
}

// TestClustersThatWereNotAskedFor has the hub take a cluster out of the caller's reach: the proxy API asks about the others.
func TestClustersThatWereNotAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		f.put(t, "a", printed("shop", "web-0"))
		f.put(t, "b", printed("shop", "web-0"))
		f.search(t, "web", "a", "b")
		f.rights.kept.write(t.Context())
		f.goAway("b")
		for name, clusters := range map[string][]indexapi.Cluster{"none": asked("a"), "a guessed UID": append(asked("a"), indexapi.Cluster{Name: "b", UID: "uid"}), "no UID": append(asked("a"), indexapi.Cluster{Name: "b"})} {
			request := indexapi.SearchRequest{Caller: jane, Query: "web", Clusters: clusters}
			var answer indexapi.SearchAnswer
			if w := f.post(t, indexapi.SearchPath, request); json.Unmarshal(w.Body.Bytes(), &answer) != nil || hits(answer) != "a/shop/web-0" || len(answer.Away) != 0 {
				t.Errorf("%s: got %s", name, w.Body)
			}
			var counts indexapi.CountAnswer
			if w := f.post(t, indexapi.CountPath, indexapi.CountRequest{SearchRequest: request, By: []string{"cluster"}}); json.Unmarshal(w.Body.Bytes(), &counts) != nil || counts.Total != 1 {
				t.Errorf("%s: counted %s", name, w.Body)
			}
		}
	})
}
