package proxyapi

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// BenchmarkProxyAPI compares, in one run, requests straight to the agent's handler
// with requests through the proxy API and the proxy server. Direct has TLS and HTTP/2 as well.
func BenchmarkProxyAPI(b *testing.B) {
	w := start(b)
	list := bytes.Repeat([]byte("x"), 53_000) // a LIST of 50 ConfigMaps
	a := w.agent("cluster1", http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/list" {
			_, _ = rw.Write(list)
			return
		}
		_, _ = rw.Write([]byte("{}"))
	}), "cluster1")
	direct := &http.Transport{TLSClientConfig: w.server.inner.ClientConfig(identity.HandlerHost("cluster1")), ForceAttemptHTTP2: true}
	b.Cleanup(direct.CloseIdleConnections)
	for _, tc := range []struct {
		name, url string
		client    *http.Client
	}{
		{"direct", "https://" + a.address, &http.Client{Transport: direct}},
		{"proxy API", w.url + "/cluster1", w.client()},
	} {
		for _, path := range []string{"/get", "/list"} {
			b.Run(tc.name+path, func(b *testing.B) {
				for b.Loop() {
					getOnce(b, tc.client, tc.url+path, "managed")
				}
			})
			b.Run(tc.name+path+"/parallel", func(b *testing.B) {
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						getOnce(b, tc.client, tc.url+path, "managed")
					}
				})
			})
		}
	}
}

func getOnce(b *testing.B, client *http.Client, url, token string) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		b.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := client.Do(req)
	if err != nil {
		b.Error(err)
		return
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil || resp.StatusCode != http.StatusOK {
		b.Errorf("%d, %v", resp.StatusCode, err)
	}
}

// BenchmarkFleetGet compares GETs of one object by the single-cluster endpoint with those
// by a view of two clusters, in which one has the object.
func BenchmarkFleetGet(b *testing.B) {
	w := start(b)
	pod := `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7"},"spec":{"x":"` + strings.Repeat("x", 9000) + `"}}`
	for _, cluster := range []string{"cluster1", "cluster2"} {
		w.agent(cluster, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", "application/json")
			if cluster != "cluster1" {
				rw.WriteHeader(http.StatusNotFound)
				_, _ = io.WriteString(rw, `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"pods \"web\" not found","reason":"NotFound","code":404}`)
				return
			}
			_, _ = io.WriteString(rw, pod)
		}), cluster)
	}
	w.addView("all", "cluster1", "cluster2")
	w.api.User("hub-token", "jane")
	w.api.Allow("jane get fleetviews all", "jane * clusters/proxy *")
	const path = "/api/v1/namespaces/shop/pods/web"
	for name, url := range map[string]string{
		"single": w.url + "/cluster1" + path, "qualified": w.url + "/@all" + path + "@cluster1", "plain": w.url + "/@all" + path,
	} {
		client := w.client()
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				getOnce(b, client, url, "hub-token")
			}
		})
		b.Run(name+"/parallel", func(b *testing.B) {
			b.SetParallelism(8)
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					getOnce(b, client, url, "hub-token")
				}
			})
		})
	}
}
