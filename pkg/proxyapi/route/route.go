package route

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Target is what a request wants.
type Target struct {
	// Cluster is the name of the managed cluster. It is valid, not necessarily
	// known.
	Cluster string
	// Path is the escaped path on the cluster. It starts with a slash.
	Path string
	// Query is the query with its question mark, or empty.
	Query string
}

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

// Parse takes a request target apart. The error is an *Error.
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
	t := Target{Cluster: cluster, Path: "/" + rest}
	if err := checkPath(t.Path); err != nil {
		return Target{}, err
	}
	if hasQuery {
		t.Query = "?" + query
		if err := checkQuery(query); err != nil {
			return Target{}, err
		}
	}
	return t, nil
}

// String is the inverse of Parse.
func (t Target) String() string {
	return "/" + t.Cluster + t.Path + t.Query
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
