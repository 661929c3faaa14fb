package index

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

const (
	// maxDiscovery, maxPage and maxError bound answers of the kube-apiserver.
	maxDiscovery, maxPage, maxError = 4 << 20, 32 << 20, 16 << 10
	// pageSize is how many objects are listed at a time.
	pageSize = 250
	// answerTimeout bounds requests other than watches.
	answerTimeout = time.Minute
	asTable       = "application/json;as=Table;v=v1;g=meta.k8s.io"
)

// client reads from the kube-apiserver.
type client struct {
	http *http.Client
	base *url.URL
}

// refusal is an answer that is not what was asked for.
type refusal struct {
	code    int
	message string
}

func (r *refusal) Error() string {
	return fmt.Sprintf("the kube-apiserver answered %d: %s", r.code, r.message)
}

// get sends a request. The caller closes the body.
func (c *client) get(ctx context.Context, path string, query url.Values, accept string) (*http.Response, error) {
	u := *c.base
	u.Path += path
	u.RawQuery = query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	var s metav1.Status
	if json.NewDecoder(io.LimitReader(resp.Body, maxError)).Decode(&s) != nil || s.Message == "" {
		s.Message = http.StatusText(resp.StatusCode)
	}
	return nil, &refusal{resp.StatusCode, s.Message}
}

// read reads an answer of at most a number of bytes into a value.
func (c *client) read(ctx context.Context, path string, query url.Values, accept string, most int64, into any) error {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	resp, err := c.get(ctx, path, query, accept)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return json.NewDecoder(io.LimitReader(resp.Body, most)).Decode(into)
}

// endpoint is where a resource is served.
type endpoint struct {
	feed.Definition
	// path leads to the version of the group.
	path string
}

// discover finds the endpoint of a resource in the version that the cluster prefers.
func (c *client) discover(ctx context.Context, r feed.Resource) (endpoint, error) {
	e := endpoint{Definition: feed.Definition{Resource: r, Version: "v1"}, path: "/api/v1"}
	if r.Group != "" {
		var group metav1.APIGroup
		if err := c.read(ctx, "/apis/"+url.PathEscape(r.Group), nil, "application/json", maxDiscovery, &group); err != nil {
			return e, err
		}
		e.Version = group.PreferredVersion.Version
		e.path = "/apis/" + r.Group + "/" + e.Version
	}
	var list metav1.APIResourceList
	if err := c.read(ctx, e.path, nil, "application/json", maxDiscovery, &list); err != nil {
		return e, err
	}
	for _, served := range list.APIResources {
		if served.Name == r.Resource {
			e.Kind, e.Namespaced = served.Kind, served.Namespaced
			return e, nil
		}
	}
	return e, &refusal{http.StatusNotFound, fmt.Sprintf("%s does not have %s", e.path, r.Resource)}
}

// query returns what is common to requests for Tables of a resource. A Table has no images of pods, so
// that their objects come with it.
func (e *endpoint) query() url.Values {
	if e.Resource == pods {
		return url.Values{"includeObject": {"Object"}}
	}
	return url.Values{"includeObject": {"Metadata"}}
}

// pods are the one resource of which more than metadata is read.
var pods = feed.Resource{Resource: "pods"}

// list reads a page.
func (c *client) list(ctx context.Context, e *endpoint, token string) (*table, error) {
	query := e.query()
	query.Set("limit", fmt.Sprint(pageSize))
	if token != "" {
		query.Set("continue", token)
	}
	t := &table{}
	return t, c.read(ctx, e.path+"/"+e.Definition.Resource.Resource, query, asTable, maxPage, t)
}

// object reads the Table of one object.
func (c *client) object(ctx context.Context, e *endpoint, key feed.Key) (*table, error) {
	path := e.path
	if e.Namespaced {
		path += "/namespaces/" + key.Namespace
	}
	t := &table{}
	return t, c.read(ctx, path+"/"+e.Definition.Resource.Resource+"/"+key.Name, e.query(), asTable, maxPage, t)
}

// watch begins a watch. The caller closes the body.
func (c *client) watch(ctx context.Context, e *endpoint, version string) (io.ReadCloser, error) {
	query := e.query()
	query.Set("watch", "true")
	query.Set("allowWatchBookmarks", "true")
	query.Set("resourceVersion", version)
	resp, err := c.get(ctx, e.path+"/"+e.Definition.Resource.Resource, query, asTable)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
