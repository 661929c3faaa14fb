package hostile

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/ui"
)

// testPage has other sites use the page's port: in a frame, by a link that was stolen, by markup in
// names, and with the client certificate in a user's browser, here the hub administrator's. Tests that
// need a browser are in pkg/proxyapi: TestPageIsNotFramed, TestPageWithClientCertificate.
func (s *Suite) testPage(t *testing.T) {
	direct := s.endpoints(t, s.attacker())[0]
	want, header, page := direct.send(t, requestText(http.MethodGet, "/ui/", direct.host, "", ""))
	if want != http.StatusOK || !strings.Contains(header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || header.Get("X-Frame-Options") != "DENY" || header.Get("Cross-Origin-Opener-Policy") != "same-origin" {
		t.Errorf("the page is %d with %v, want it in no frame", want, header)
	}
	// A link names who may see nothing and brings nothing along: it is the page that everybody gets.
	for _, link := range []string{"/ui/?token=x", "/ui/?access_token=x&state=y", "/ui/?cluster=" + s.attacker(), "/ui/?session=" + strings.Repeat("a", 64)} {
		code, header, body := direct.send(t, requestText(http.MethodGet, link, direct.host, "", "", "Cookie: token=x", "Referer: https://evil.test/"))
		if code != http.StatusOK || body != page || len(header["Set-Cookie"]) > 0 || header.Get("Location") != "" {
			t.Errorf("the link %s is answered %d with %v, want the page that everybody gets", link, code, header)
		}
	}
	t.Run("markup in names", s.testMarkup)
	t.Run("other sites", s.testOtherSites)
}

// asAdministrator is an endpoint with the client certificate of the hub's administrator, who may
// see everything.
func (s *Suite) asAdministrator(t *testing.T, d endpoint) endpoint {
	t.Helper()
	config, err := rest.TLSConfigFor(s.Lab.Hub.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	d.config = d.config.Clone()
	d.config.Certificates, d.config.GetClientCertificate = config.Certificates, config.GetClientCertificate
	// A session that was resumed would be that of somebody without a certificate.
	d.config.ClientSessionCache = tls.NewLRUClientSessionCache(0)
	return d
}

// testMarkup asks for clusters, views, pods, sessions and files by names that are markup, as a link
// of another site would. No answer is a document with that markup in it.
func (s *Suite) testMarkup(t *testing.T) {
	const mark = "hostile-markup"
	kinds := map[string]int{}
	for _, d := range s.endpoints(t, s.attacker()) {
		if d.name != "aggregated" {
			d = s.asAdministrator(t, d)
		}
		for _, name := range []string{
			"%3Cscript%3E" + mark + "%3C%2Fscript%3E", "<script>" + mark + "</script>", "%3Cimg%20src=x%20onerror=" + mark + "%3E", "%22%3E%3Csvg%2Fonload=" + mark + "%3E", "javascript:" + mark, "%3C!--" + mark,
		} {
			for _, target := range []string{
				"/" + name + "/version", clustersPath + name + "/proxy/version", "/@" + name + "/api", viewsPath + name + "/proxy/api", d.prefix + "/api/v1/namespaces/default/pods/" + name, d.prefix + "/api/v1/namespaces/" + name + "/pods/" + name + "/exec?command=id",
				sessionsPath + "/" + name, "/ui/" + name, "/ui/?" + name, "/ui/" + name + "/../", "/" + name, d.prefix + "/" + name,
			} {
				code, header, body := d.send(t, requestText(http.MethodGet, target, d.host, "", ""))
				kind, _, _ := strings.Cut(header.Get("Content-Type"), ";")
				kinds[kind]++
				if code >= 500 && code != http.StatusNotImplemented {
					t.Errorf("%s: %s: %d %.300s, want less than 500, or 501", d.name, target, code, body)
				}
				if strings.Contains(body, mark) && kind != "application/json" && kind != "text/plain" {
					t.Errorf("%s: %s: %d with %v %.300s, want no document with the name in it", d.name, target, code, header, body)
				}
				if strings.Contains(header.Get("Location"), mark) && !strings.HasPrefix(header.Get("Location"), "/") {
					t.Errorf("%s: %s leads to %s", d.name, target, header.Get("Location"))
				}
			}
		}
	}
	t.Logf("answers: %v", kinds)
	if kinds["application/json"] == 0 || kinds["text/html"] == 0 {
		t.Errorf("answers %v: too few kinds, something is wrong with the test", kinds)
	}
}

// testOtherSites has a browser with the administrator's certificate send what pages of other sites
// can have it send.
func (s *Suite) testOtherSites(t *testing.T) {
	const mark, maps = "hostile-page-", "/api/v1/namespaces/default/configmaps"
	cluster := s.attacker()
	admin := s.asAdministrator(t, s.endpoints(t, cluster)[0])
	asked := 0
	ask := func(method, path string, lines ...string) (int, http.Header, string) {
		asked++
		return admin.send(t, admin.request(method, path, "", "", append(slices.Clone(lines), fmt.Sprint("Audit-ID: ", mark, asked), "Content-Length: 0")...))
	}
	code, header, body := ask(http.MethodGet, "/version")
	if code != http.StatusOK || header.Get("Content-Security-Policy") != ui.Sandbox {
		t.Fatalf("the administrator with a certificate: %d with %v %.300s, want 200 in a sandbox", code, header, body)
	}
	s.saw(t, cluster, mark+"1")
	exec := "/api/v1/namespaces/default/pods/" + s.webPodOf(t, cluster) + "/exec?command=id&stdout=1"
	for name, try := range map[string]struct {
		method, path string
		lines        []string
	}{
		"a form":              {http.MethodPost, maps, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: document", "Origin: https://evil.test"}},
		"fetch":               {http.MethodPost, maps, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Origin: https://evil.test"}},
		"a cluster's sandbox": {http.MethodDelete, maps, []string{"Sec-Fetch-Site: cross-site", "Origin: null"}},
		"another port":        {http.MethodDelete, maps, []string{"Sec-Fetch-Site: same-site", "Origin: https://127.0.0.1:1"}},
		"a frame":             {http.MethodGet, maps, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-Dest: iframe"}},
		"an image":            {http.MethodGet, maps, []string{"Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"}},
		"a WebSocket":         {http.MethodGet, exec, append([]string{"Origin: https://evil.test"}, socket...)},
		"an old browser":      {http.MethodPost, maps, []string{"Origin: https://evil.test"}},
	} {
		if code, _, body := ask(try.method, try.path, try.lines...); code != http.StatusForbidden || !strings.Contains(body, "a page of another site") {
			t.Errorf("%s of another site is answered %d %.300s, want 403 that says so", name, code, body)
		}
	}
	for i := 2; i <= asked; i++ {
		s.neverSaw(t, cluster, fmt.Sprintf("%q", fmt.Sprint(mark, i)))
	}
}
