package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"open-cluster-management.io/cluster-proxy/pkg/indexapi"
	"open-cluster-management.io/cluster-proxy/pkg/proxyapi/scope"
	"open-cluster-management.io/cluster-proxy/test/testkit/plainhttp"
	"open-cluster-management.io/cluster-proxy/test/testkit/ports"
	"open-cluster-management.io/cluster-proxy/test/testkit/scrape"
	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// world is all that runs.
type world struct {
	*results
	shape
	// all are the clusters, and rows how many they have together.
	all  []*member
	rows int

	dir     string
	hub     *hub
	serving *http.Server // the hub

	// agents do what they are ordered to at an address.
	agents *process
	orders string

	index     *process
	indexSpec processSpec
	// withoutRows is what the index takes without any, in bytes.
	withoutRows float64

	// api answers at base.
	api    *process
	base   string
	client *http.Client
	// warned counts pages with Warnings.
	warned int
	// asProxyAPI asks the index itself.
	asProxyAPI *indexapi.Client
}

// newWorld starts everything but the index.
func newWorld(ctx context.Context, s shape, r *results) (w *world, err error) {
	w = &world{results: r, shape: s}
	w.all, w.rows = s.members()
	defer func() {
		if err != nil {
			w.stop()
		}
	}()
	if w.dir, err = os.MkdirTemp("", "bench-index-"); err != nil {
		return w, err
	}
	made := certs(w.dir)
	if err := made.make(); err != nil {
		return w, err
	}
	kubeconfig, err := w.serveHub()
	if err != nil {
		return w, err
	}
	w.say(fmt.Sprintf("starting %d clusters", len(w.all)))
	agents, said, err := start(w.dir, theAgents, agentsSpec{made, s})
	if err != nil {
		return w, err
	}
	w.agents, w.orders = agents, said.Orders
	spec := func() (processSpec, error) {
		port, err := ports.Next()
		health, err2 := ports.Next()
		return processSpec{Certs: made, Kubeconfig: kubeconfig, ProxyServer: said.ProxyServer, Port: port, HealthPort: health}, errors.Join(err, err2)
	}
	if w.indexSpec, err = spec(); err != nil {
		return w, err
	}
	apiSpec, err := spec()
	if err != nil {
		return w, err
	}
	apiSpec.Index = w.indexSpec.address()
	if w.api, _, err = start(w.dir, theAPI, apiSpec); err != nil {
		return w, err
	}
	own, err := made.load(ofAPI, hubCA)
	if err != nil {
		return w, err
	}
	w.asProxyAPI = indexapi.NewClient(apiSpec.Index, own)
	ca, err := made.ca(hubCA)
	if err != nil {
		return w, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(ca.CertPEM())
	w.client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true, DisableCompression: true}}
	w.base = "https://" + apiSpec.address()
	return w, w.await(ctx, "the proxy API", func() error {
		_, err := plainhttp.Get(ctx, fmt.Sprintf("http://127.0.0.1:%d/readyz", apiSpec.HealthPort))
		return err
	})
}

func (s processSpec) address() string { return fmt.Sprintf("127.0.0.1:%d", s.Port) }

// serveHub serves the hub's kube-apiserver, and returns a kubeconfig of it.
func (w *world) serveHub() (string, error) {
	var err error
	if w.hub, err = newHub(w.shape); err != nil {
		return "", err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	w.serving = &http.Server{Handler: w.hub, ReadHeaderTimeout: time.Minute}
	go func() { _ = w.serving.Serve(listener) }()
	config := clientcmdapi.NewConfig()
	config.Clusters["hub"] = &clientcmdapi.Cluster{Server: "http://" + listener.Addr().String()}
	config.AuthInfos["hub"] = &clientcmdapi.AuthInfo{Token: "hub"}
	config.Contexts["hub"] = &clientcmdapi.Context{Cluster: "hub", AuthInfo: "hub"}
	config.CurrentContext = "hub"
	file := filepath.Join(w.dir, "kubeconfig")
	return file, clientcmd.WriteToFile(*config, file)
}

// startIndex starts the index over a file, which may be there already.
func (w *world) startIndex(file string) error {
	spec := w.indexSpec
	spec.Store = filepath.Join(w.dir, file)
	var err error
	w.index, _, err = start(w.dir, theIndex, spec)
	return err
}

func (w *world) stopIndex() {
	w.index.stop()
	w.index = nil
}

func (w *world) stop() {
	for _, p := range []*process{w.api, w.index, w.agents} {
		if p != nil {
			p.stop()
		}
	}
	if w.serving != nil {
		_ = w.serving.Close()
	}
	_ = os.RemoveAll(w.dir)
}

// metric adds up a metric of the index.
func (w *world) metric(ctx context.Context, name string, labels ...string) (float64, error) {
	text, err := plainhttp.Get(ctx, fmt.Sprintf("http://127.0.0.1:%d/metrics", w.indexSpec.HealthPort))
	if err != nil {
		return 0, err
	}
	return scrape.Sum(strings.NewReader(text), name, labels...)
}

// awaitMetric waits until a metric of the index has reached a value.
func (w *world) awaitMetric(ctx context.Context, want float64, name string, labels ...string) error {
	return w.await(ctx, name, func() error {
		got, err := w.metric(ctx, name, labels...)
		if err == nil && got < want {
			err = fmt.Errorf("it is %.0f of %.0f", got, want)
		}
		return err
	})
}

// Metrics of the index.
const (
	clustersMetric, current = "cluster_proxy_index_clusters", `state="current"`
	changesMetric, put      = "cluster_proxy_index_changes_total", `change="put"`
)

// limit is how long anything may take.
const limit = 10 * time.Minute

func (w *world) await(ctx context.Context, what string, ready func() error) error {
	if err := (wait.Poll{Every: 100 * time.Millisecond, For: limit}).Try(ctx, ready); err != nil {
		return fmt.Errorf("waiting for %s: %w", what, err)
	}
	return nil
}

// order has the agents do something.
func (w *world) order(ctx context.Context, path string, into any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.orders+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if into == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// get asks the proxy API as a user.
func (w *world) get(ctx context.Context, token, path string, query url.Values) (body []byte, warnings []string, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json")
	resp, err := w.client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s is answered %s: %.500s", path, resp.Status, body)
	}
	return body, resp.Header.Values("Warning"), err
}

// pageSize is kubectl's.
const pageSize = "500"

// list lists the pods of a view as kubectl get pods -A does, and wants so many. It says which Warnings an answer has: the index
// does not answer in time, or clusters do not.
func (w *world) list(ctx context.Context, token, view string, want int) (took time.Duration, err error) {
	began, got := time.Now(), 0
	for query := (url.Values{"limit": {pageSize}}); ; {
		page, warnings, err := w.get(ctx, token, "/@"+view+podsPath, query)
		if err != nil {
			return 0, err
		}
		if len(warnings) > 0 {
			w.warned++
			w.note(fmt.Sprintf("a list of view %s has Warnings %.300q", view, warnings))
		}
		got += bytes.Count(page, []byte(`"cells":`))
		_, rest, more := bytes.Cut(page, []byte(`"continue":"`))
		if !more {
			break
		}
		text, _, _ := bytes.Cut(rest, []byte(`"`))
		query.Set("continue", string(text))
	}
	if took = time.Since(began); got != want {
		w.note(fmt.Sprintf("a list of view %s has %d pods, want %d", view, got, want))
	}
	return took, nil
}

// search searches the view of all clusters, or counts if there is something to count by, and returns the answer.
func (w *world) search(ctx context.Context, token, words, countBy string, into any) (took time.Duration, err error) {
	query := url.Values{"q": {words}, "limit": {"100"}}
	if countBy != "" {
		query = url.Values{"q": {words}, "countBy": {countBy}}
	}
	began := time.Now()
	body, _, err := w.get(ctx, token, scope.ViewsPath+viewOfAll+"/search", query)
	if err != nil {
		return 0, err
	}
	took = time.Since(began)
	return took, json.Unmarshal(body, into)
}
