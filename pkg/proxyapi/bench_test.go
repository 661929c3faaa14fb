package proxyapi

import (
	"bytes"
	"io"
	"net/http"
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
					getOnce(b, tc.client, tc.url+path)
				}
			})
			b.Run(tc.name+path+"/parallel", func(b *testing.B) {
				b.SetParallelism(16)
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						getOnce(b, tc.client, tc.url+path)
					}
				})
			})
		}
	}
}

func getOnce(b *testing.B, client *http.Client, url string) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		b.Error(err)
		return
	}
	req.Header.Set("Authorization", "Bearer managed")
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
