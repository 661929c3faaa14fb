package hostile

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/rand"
)

// beginning is the beginning of an answer that may go on without end.
func beginning(contentType, more string) string {
	return "HTTP/1.1 200 OK\r\nContent-Type: " + contentType + "\r\n" + more
}

// whole is an answer with its length.
func whole(contentType, more, body string) string {
	return beginning(contentType, more) + fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body)
}

// zipped is an answer in JSON that is compressed.
func zipped(body string) string {
	var compressed bytes.Buffer
	zip := gzip.NewWriter(&compressed)
	_, _ = io.WriteString(zip, body)
	_ = zip.Close()
	return whole("application/json", "Content-Encoding: gzip\r\n", compressed.String())
}

// evilLists are what a kube-apiserver in an attacker's hands says to a list of ConfigMaps.
func evilLists() []answer {
	const list = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[`
	return []answer{
		{name: "nonsense", text: whole("application/json", "", "nonsense")},
		{name: "HTML", text: whole("text/html", "", "<html>")},
		{name: "no media type", text: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"},
		{name: "a Status", text: whole("application/json", "", `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success","code":200}`)},
		{name: "another kind", text: whole("application/json", "", `{"kind":"SecretList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"stolen","namespace":"default"}}]}`)},
		{name: "another version", text: whole("application/json", "", `{"kind":"ConfigMapList","apiVersion":"v9","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"stolen","namespace":"default"}}]}`)},
		{name: "cut short", text: beginning("application/json", "Content-Length: 100000\r\n\r\n") + list + `{"metadata":{"na`},
		{name: "truncated, and said to be whole", text: whole("application/json", "", list+`{"metadata":{"name":"x"}},`)},
		{name: "a bomb", text: zipped(list + strings.Repeat(" ", 64<<20))},
		{name: "blanks without end", text: beginning("application/json", "\r\n"), forever: strings.Repeat(" ", 1000)},
		{name: "an item without end", text: beginning("application/json", "\r\n") + list + `{"metadata":{"name":"`, forever: strings.Repeat("x", 1000)},
		{name: "depth without end", text: beginning("application/json", "\r\n") + list, forever: strings.Repeat("[", 1000)},
		{name: "redirect", text: "HTTP/1.1 302 Found\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n"},
		{name: "refusal without end", text: "HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\n\r\n" + `{"kind":"Status","message":"`, forever: strings.Repeat("x", 1000)},
		{name: "lines for the log", text: strings.Replace(whole("application/json", "", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"message":"a\"\r\nX-Evil: b\u001b[2J"}`), "200 OK", "403 Forbidden", 1)},
		{name: "nothing"},
	}
}

// testEvilMember has a cluster in a view that answers what no kube-apiserver does. It is
// left out with a Warning; all of the others is there, and the proxy API's memory is
// bounded.
func (s *Suite) testEvilMember(t *testing.T) {
	// It is the first of the view's clusters, whose answer comes first.
	const name, user, view = "0-evil-member", "hostile-evil-member", "hostile-evil"
	e := s.evilCluster(t, name, evilLists())
	a, v := s.attacker(), s.victim()
	own := "hostile-evil-" + rand.String(5)
	s.makeMap(t, a, own, nil)
	s.makeMap(t, v, own, nil)
	s.create(t, viewsResource, "", "FleetView", view, map[string]any{
		"clusters": map[string]any{"names": []any{name, a, v}}, "clusterTimeoutSeconds": int64(1),
	})
	token := s.hubUser(t, user, mayUseViews(mayReach(name, "*"), mayReach(a, "*"), mayReach(v, "*"))...)
	s.mayEverywhere(t, user)
	endpoints := s.viewEndpoints(t, view)
	path := func(i int, query string) string {
		return fmt.Sprintf("%s?fieldSelector=metadata.name!=evil-%d,metadata.name%%3D%s%s", mapPath, i, own, query)
	}
	eventually(t, "the evil cluster to be in the view", func() error {
		code, header, body := endpoints[0].send(t, endpoints[0].request(http.MethodGet, path(0, ""), token, ""))
		if code != http.StatusOK || !strings.Contains(fmt.Sprint(header["Warning"]), "its answer") {
			return fmt.Errorf("%d %q %.300s", code, header["Warning"], body)
		}
		return nil
	})
	memory := s.watch(t, proxyAPI, "go_memstats_heap_inuse_bytes")
	for _, d := range endpoints {
		for i, answer := range e.answers {
			for _, query := range []string{"", "&limit=500"} {
				if query != "" && d.name != endpoints[0].name {
					continue
				}
				t.Run(d.name+"/"+answer.name+query, func(t *testing.T) {
					code, header, body := d.send(t, d.request(http.MethodGet, path(i, query), token, "", "Accept: application/json"))
					if code != http.StatusOK || strings.Count(body, `"name":"`+own+`"`) != 2 || strings.Contains(body, "stolen") {
						t.Errorf("answered %d %.1000s, want the objects of both others", code, body)
					}
					warned := strings.Join(header["Warning"], "\n")
					if !strings.Contains(warned, name) && !strings.Contains(body, `"continue":"`) {
						t.Errorf("Warnings are %q, want one of the evil cluster", warned)
					}
					if header.Get("X-Evil") != "" || strings.ContainsAny(warned, "\x1b\r") || len(warned) > 2000 {
						t.Errorf("Warnings are %.3000q, want what the cluster says cut and without control characters", warned)
					}
				})
			}
		}
	}
	// Documents of real clusters take longer than a list of two objects.
	s.create(t, viewsResource, "", "FleetView", view+"-documents", map[string]any{"clusters": map[string]any{"names": []any{name, a, v}}})
	s.sendBombs(t, e, s.viewEndpoints(t, view+"-documents"), token, memory)
	s.watchEvil(t, endpoints[0], view, own, token)
	now, err := memory.value(t.Context())
	if grown := (now - memory.before) / (1 << 20); err != nil || grown > 256 {
		t.Errorf("the proxy API's heap has grown by %.0f MiB, %v; want 256 at most", grown, err)
	}
	memory.lacks(t, "Panic")
}

// watchEvil watches a view with a member that begins no watch: the others' objects come.
func (s *Suite) watchEvil(t *testing.T, d endpoint, view, own, token string) {
	t.Helper()
	var watches sync.WaitGroup
	for i, answer := range evilLists() {
		if answer.forever == "" && i%4 > 0 {
			continue // a connection each
		}
		conn := d.dial(t, "http/1.1")
		request := d.request(http.MethodGet, fmt.Sprintf("%s?watch=1&timeoutSeconds=4&fieldSelector=metadata.name!=evil-%d,metadata.name%%3D%s", mapPath, i, own), token, "")
		watches.Go(func() {
			began := time.Now()
			code, _, body := exchange(conn, request)
			if code != http.StatusOK || strings.Count(body, `"name":"`+own+`"`) != 2 || strings.Contains(body, "stolen") {
				t.Errorf("watching view %s, answer %d, for %v: %d %.1000s, want the objects of both others", view, i, time.Since(began).Round(time.Second), code, body)
			}
		})
	}
	watches.Wait()
}
