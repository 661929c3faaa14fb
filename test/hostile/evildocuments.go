package hostile

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// evilDocument is a document of a few KiB that takes gigabytes if it is decoded as it is.
type evilDocument struct {
	name, path, opening, more, end string
	// leading are good answers, by path, without which nobody asks for the document.
	leading map[string]string
	// code is what the client must see. The others' part is there, if they have one.
	code int
}

// evilDocuments are those that the proxy API asks each cluster for. An OpenAPI v2 document it asks
// those clusters for that most clusters agree with: fleetview's TestEvilDocuments has it.
func evilDocuments() []evilDocument {
	const group = `{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"evil.example"},"versions":[{"version":"v1","resources":[`
	const none = `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","metadata":{},"items":[]}`
	discovery := map[string]string{"/api": none, "/apis": none}
	return []evilDocument{
		{name: "aggregated discovery", path: "/apis", opening: group, more: "{},", end: "{}]}]}]}", code: http.StatusOK},
		{name: "aggregated discovery of the core group", path: "/api", opening: group, more: "{},", end: "{}]}]}]}", code: http.StatusOK},
		{name: "groups", path: "/apis", opening: `{"kind":"APIGroupList","groups":[`, more: "{},", end: "{}]}", code: http.StatusOK},
		{name: "versions", path: "/api", opening: `{"kind":"APIVersions","versions":[`, more: `"",`, end: `""]}`, code: http.StatusOK},
		{name: "version", path: "/version", opening: `{"gitVersion":"v1.`, more: "3", end: `"}`, code: http.StatusOK},
		{name: "index of OpenAPI v3", path: "/openapi/v3", opening: `{"paths":{`, more: `"a":{},`, end: `"a":{}}}`, leading: discovery, code: http.StatusOK},
		{name: "OpenAPI v3", path: "/openapi/v3/apis/evil.example/v1", opening: `{"paths":[`, more: "{},", end: "{}]}",
			leading: map[string]string{"/api": none, "/apis": none, "/openapi/v3": `{"paths":{"apis/evil.example/v1":{"serverRelativeURL":"/openapi/v3/apis/evil.example/v1?hash=1"}}}`}, code: http.StatusServiceUnavailable},
	}
}

// bomb is 32 MiB of the document, compressed.
func (d *evilDocument) bomb() answer {
	return answer{name: d.name, text: zipped(d.opening + strings.Repeat(d.more, (32<<20)/len(d.more)) + d.end)}
}

// sendBombs has the evil cluster of a view answer with each document. Users have what the
// others say, and the proxy API's memory is bounded.
func (s *Suite) sendBombs(t *testing.T, e *evilAPI, endpoints []endpoint, token string, memory *notice) {
	t.Helper()
	defer e.document.Store(nil)
	for i, document := range evilDocuments() {
		d := endpoints[i%len(endpoints)] // the proxy API has one cache for them all
		t.Run(d.name+"/bomb/"+document.name, func(t *testing.T) {
			e.document.Store(&document)
			sent := e.sent.Load()
			var code int
			var header http.Header
			var body string
			// A cluster that has failed is not asked again for some seconds.
			eventually(t, "the proxy API to ask for "+document.path, func() error {
				code, header, body = d.send(t, d.request(http.MethodGet, document.path, token, "", "Accept: application/json"))
				if e.sent.Load() == sent || code == http.StatusNotFound { // the view may be new
					return fmt.Errorf("not asked; answered %d %.300s with Warnings %.600q", code, body, header["Warning"])
				}
				return nil
			})
			if code != document.code {
				t.Errorf("answered %d %.300s with Warnings %.600q, want %d", code, body, header["Warning"], document.code)
			}
			now, err := memory.value(t.Context())
			if grown := (now - memory.before) / (1 << 20); err != nil || grown > 256 {
				t.Errorf("the proxy API's heap has grown by %.0f MiB, %v; want 256 at most", grown, err)
			}
		})
	}
}
