package route

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Target is what a request wants.
type Target struct {
	// Cluster is the name of the managed cluster. It is valid, not necessarily
	// known.
	Cluster string
	// Service is what on the cluster is meant. The zero value means the
	// kube-apiserver.
	Service agentapi.Service
	// Path is the escaped path that the cluster's kube-apiserver or the Service
	// gets to see. It starts with a slash.
	Path string
	// Query is the query with its question mark, or empty.
	Query string
}

// ForService reports whether a Service is meant.
func (t Target) ForService() bool { return t.Service != agentapi.Service{} }

// Error says why a request target is refused, and with which HTTP status.
type Error struct {
	Code   int
	Reason string
}

func (e *Error) Error() string { return e.Reason }

func notFound(format string, args ...any) error {
	return &Error{Code: http.StatusNotFound, Reason: fmt.Sprintf(format, args...)}
}

func badRequest(format string, args ...any) error {
	return &Error{Code: http.StatusBadRequest, Reason: fmt.Sprintf(format, args...)}
}

// reserved are first segments under which the proxy API serves itself. Clusters
// of these names are reached in other ways.
var reserved = []string{"apis", "openapi", "livez", "readyz", "healthz"}

// Own reports whether a request target is meant for the proxy API itself:
// discovery, its own API and probes.
func Own(target string) bool {
	path, _, _ := strings.Cut(target, "?")
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return slices.Contains(reserved, first)
}

// Parse takes a request target of the form /<cluster>/<path>?<query> apart. The
// error is an *Error.
func Parse(target string) (Target, error) {
	path, query, hasQuery := strings.Cut(target, "?")
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return Target{}, badRequest("request target %q does not start with a slash", target)
	}
	cluster, rest, _ := strings.Cut(rest, "/")
	if err := identity.ValidateCluster(cluster); err != nil {
		return Target{}, notFound("the path must be /<cluster>/<Kubernetes path>: %v", err)
	}
	return parse(cluster, "/"+rest, query, hasQuery)
}

// ParseIn takes a request target of the form /<path>?<query> apart, which was
// sent to a host that stands for one cluster. The error is an *Error.
func ParseIn(cluster, target string) (Target, error) {
	path, query, hasQuery := strings.Cut(target, "?")
	if !strings.HasPrefix(path, "/") {
		return Target{}, badRequest("request target %q does not start with a slash", target)
	}
	if err := identity.ValidateCluster(cluster); err != nil {
		return Target{}, notFound("the host must be <cluster>.<domain>: %v", err)
	}
	return parse(cluster, path, query, hasQuery)
}

// ParseBelow takes a request target of the form
// <prefix><cluster>/<subresource>/<path>?<query> apart. It reports whether the
// target has that form at all; the error is an *Error.
func ParseBelow(prefix, subresource, target string) (_ Target, ok bool, _ error) {
	path, query, hasQuery := strings.Cut(target, "?")
	rest, ok := strings.CutPrefix(path, prefix)
	if !ok {
		return Target{}, false, nil
	}
	cluster, rest, _ := strings.Cut(rest, "/")
	name, rest, _ := strings.Cut(rest, "/")
	if name != subresource {
		return Target{}, false, nil
	}
	if err := identity.ValidateCluster(cluster); err != nil {
		return Target{}, true, notFound("the path must be %s<cluster>/%s/<Kubernetes path>: %v", prefix, subresource, err)
	}
	t, err := parse(cluster, "/"+rest, query, hasQuery)
	return t, true, err
}

func parse(cluster, path, query string, hasQuery bool) (Target, error) {
	t := Target{Cluster: cluster, Path: path}
	if err := checkPath(t.Path); err != nil {
		return Target{}, err
	}
	if hasQuery {
		t.Query = "?" + query
		if err := checkQuery(query); err != nil {
			return Target{}, err
		}
	}
	if err := t.cutService(); err != nil {
		return Target{}, err
	}
	return t, nil
}

// String is the inverse of Parse.
func (t Target) String() string {
	return "/" + t.Cluster + t.servicePrefix() + t.Path + t.Query
}

// Decoded is the path as a server sees it after decoding.
func (t Target) Decoded() string {
	path, err := url.PathUnescape(t.Path)
	if err != nil {
		return t.Path // Parse saw to it that there is no error
	}
	return path
}

// Apply points u at the target's path and query, so that u.RequestURI gives
// them back byte for byte.
func (t Target) Apply(u *url.URL) error {
	path, err := url.PathUnescape(t.Path)
	if err != nil {
		return badRequest("path %q has a broken escape", t.Path)
	}
	u.Opaque, u.Path, u.RawPath = "", path, t.Path
	u.RawQuery = strings.TrimPrefix(t.Query, "?")
	u.ForceQuery = t.Query == "?"
	return nil
}

// checkPath accepts what RFC 3986 allows in a path, and no dot segments, in
// whatever way slash and dot are written.
func checkPath(path string) error {
	for _, c := range []byte(path) {
		if !pathByte(c) {
			return badRequest("path %q holds the byte %q, which must be percent-encoded", path, c)
		}
	}
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return badRequest("path %q has a broken escape", path)
	}
	for segment := range strings.SplitSeq(decoded, "/") {
		if segment == "." || segment == ".." {
			return badRequest("path %q has a dot segment", path)
		}
	}
	return nil
}

func pathByte(c byte) bool {
	switch {
	case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		return true
	}
	return strings.IndexByte("/%-._~!$&'()*+,;=:@[]", c) >= 0
}

func checkQuery(query string) error {
	for _, c := range []byte(query) {
		if c <= ' ' || c == '#' || c >= 0x7f {
			return badRequest("the query holds the byte %q, which must be percent-encoded", c)
		}
	}
	return nil
}
