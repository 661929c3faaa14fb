package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/test/e2e/suite"
	"open-cluster-management.io/cluster-proxy/test/testkit/browser"
	"open-cluster-management.io/cluster-proxy/test/testkit/long"
)

// TestPage has an administrator and jane look at the page, while somebody has a shell and a
// watch open. It disturbs nothing.
func TestPage(t *testing.T) {
	long.Test(t)
	releaseOnNodes(t)
	installed.NeedLab(t, "needs the chart's value ui.enabled")
	browser.Needs(t)
	const group = "clusterproxy.open-cluster-management.io"
	lists := suite.Rule(group, "clusters", []string{"list"})
	admin := installed.MakeUser(t, "e2e-page-admin", append(suite.MayUseViews(), lists, suite.MayReach(suite.AllVerbs), suite.Rule(group, "sessions", suite.ReadVerbs))...)
	jane := installed.MakeUser(t, "e2e-page-jane", lists, suite.MayReach(suite.ReadVerbs, installed.Clusters[0]))
	openShellAndWatch(t)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, installed.HubCA, 0o600); err != nil {
		t.Fatal(err)
	}
	page := browser.Open(t, ca)
	page.Look(1440, 900, "light")

	signIn(page, admin)
	for _, cluster := range installed.Clusters {
		page.WaitFor(fmt.Sprintf(`document.getElementById('board').innerText.includes(%q)`, cluster))
	}
	page.Screenshot("lab-admin-clusters")
	page.WaitFor(`!document.getElementById('tab-sessions').hidden`)
	page.Eval(`document.getElementById('tab-sessions').click()`)
	for _, cell := range []string{"exec", "view-watch", suite.HubUser} {
		page.WaitFor(fmt.Sprintf(`document.getElementById('sessions').innerText.includes(%q)`, cell))
	}
	page.Screenshot("lab-admin-sessions")
	page.Eval(`document.getElementById('tab-views').click()`)
	page.WaitFor(`document.getElementById('views').innerText.includes('/@all/')`)
	page.Screenshot("lab-admin-views")
	page.Eval(`document.getElementById('leave').click()`)

	signIn(page, jane)
	page.WaitFor(fmt.Sprintf(`document.getElementById('board').innerText.includes(%q) && document.querySelectorAll('#board tbody tr').length === 1`, installed.Clusters[0]))
	page.WaitFor(`document.getElementById('tab-sessions').hidden && document.getElementById('tab-views').hidden`)
	page.Screenshot("lab-jane-clusters")
	for _, problem := range page.Problems() {
		t.Errorf("the browser complains: %s", problem)
	}
	for _, request := range page.Requests("") {
		for _, secret := range append(installed.Clusters, admin, jane) {
			if strings.Contains(request.URL, secret) {
				t.Errorf("a request names a cluster or shows a token: %s", request.URL)
			}
		}
	}
}

func signIn(page *browser.Page, token string) {
	page.Go("https://" + installed.ProxyAPI + "/ui/")
	page.WaitFor(`document.activeElement?.id === 'token'`)
	page.Type(token)
	page.Press("Enter")
}

// openShellAndWatch has HubUser open a shell on a cluster, and a watch of all clusters, until
// the test ends.
func openShellAndWatch(t *testing.T) {
	t.Helper()
	cfg := installed.ThroughProxyAPI(installed.Clusters[0])
	cfg.BearerToken = installed.HubToken
	openShell(t, cfg, "websocket")
	watch, err := suite.Clientset(t, installed.ViewEndpoints("all", installed.HubToken)[0].Cfg).CoreV1().Pods("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(watch.Stop)
}
