package route

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/agentapi"
	"open-cluster-management.io/cluster-proxy/pkg/identity"
)

// Target is what a request wants: a cluster or a view.
type Target struct {
	// Cluster is the name of the managed cluster. It is valid, not necessarily
	// known. It is empty if a view is meant.
	Cluster string
	// View is the name of the fleet view that is meant, likewise valid; empty if a
	// cluster is meant.
	View string
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

// Parse takes a request target of the form /<cluster>/<path>?<query> or
// /@<view>/<path>?<query> apart. The error is an *Error.
func Parse(target string) (Target, error) {
	path, query, hasQuery := strings.Cut(target, "?")
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return Target{}, badRequest("request target %q does not start with a slash", target)
	}
	cluster, rest, _ := strings.Cut(rest, "/")
	if view, ok := cutAt(cluster); ok {
		if err := checkView(view); err != nil {
			return Target{}, notFound("the path must be /@<view>/<Kubernetes path>: %v", err)
		}
		return parse(Target{View: view}, "/"+rest, query, hasQuery)
	}
	if err := identity.ValidateCluster(cluster); err != nil {
		return Target{}, notFound("the path must be /<cluster>/<Kubernetes path>: %v", err)
	}
	return parse(Target{Cluster: cluster}, "/"+rest, query, hasQuery)
}

// cutAt cuts the sign of a view off a segment. It is in no cluster's name. Some clients
// encode it.
func cutAt(segment string) (view string, ok bool) {
	if view, ok = strings.CutPrefix(segment, "@"); !ok {
		view, ok = strings.CutPrefix(segment, "%40")
	}
	return view, ok
}

// checkView accepts what may be a FleetView's name.
func checkView(view string) error {
	if identity.ValidateCluster(view) != nil { // the same: a DNS subdomain
		return fmt.Errorf("%q is no name of a FleetView", view)
	}
	return nil
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
	return parse(Target{Cluster: cluster}, path, query, hasQuery)
}

// ParseBelow takes a request target of the form
// <prefix><cluster>/<subresource>/<path>?<query> apart. It reports whether the
// target has that form at all; the error is an *Error.
func ParseBelow(prefix, subresource, target string) (_ Target, ok bool, _ error) {
	cluster, path, query, hasQuery, ok := below(prefix, subresource, target)
	if !ok {
		return Target{}, false, nil
	}
	if err := identity.ValidateCluster(cluster); err != nil {
		return Target{}, true, notFound("the path must be %s<cluster>/%s/<Kubernetes path>: %v", prefix, subresource, err)
	}
	t, err := parse(Target{Cluster: cluster}, path, query, hasQuery)
	return t, true, err
}

// ParseViewBelow is ParseBelow for <prefix><view>/<subresource>/<path>?<query>.
func ParseViewBelow(prefix, subresource, target string) (_ Target, ok bool, _ error) {
	view, path, query, hasQuery, ok := below(prefix, subresource, target)
	if !ok {
		return Target{}, false, nil
	}
	if err := checkView(view); err != nil {
		return Target{}, true, notFound("the path must be %s<view>/%s/<Kubernetes path>: %v", prefix, subresource, err)
	}
	t, err := parse(Target{View: view}, path, query, hasQuery)
	return t, true, err
}

// ParseViewAt takes a request target of the form <endpoint>/<path>?<query> apart, in which
// the whole endpoint stands for a view. It reports whether the target has that form at all;
// the error is an *Error.
func ParseViewAt(endpoint, view, target string) (_ Target, ok bool, _ error) {
	path, query, hasQuery := strings.Cut(target, "?")
	rest, ok := strings.CutPrefix(path, endpoint)
	if !ok || rest != "" && rest[0] != '/' {
		return Target{}, false, nil
	}
	t, err := parse(Target{View: view}, "/"+strings.TrimPrefix(rest, "/"), query, hasQuery)
	return t, true, err
}

func below(prefix, subresource, target string) (name, path, query string, hasQuery, ok bool) {
	path, query, hasQuery = strings.Cut(target, "?")
	rest, ok := strings.CutPrefix(path, prefix)
	name, rest, _ = strings.Cut(rest, "/")
	sub, rest, _ := strings.Cut(rest, "/")
	return name, "/" + rest, query, hasQuery, ok && sub == subresource
}

// parse completes a target that has its cluster or view.
func parse(t Target, path, query string, hasQuery bool) (Target, error) {
	t.Path = path
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
	if t.View != "" && t.ForService() {
		return Target{}, notFound("a view has no exposed Services: their path is /<cluster>%s/", t.servicePrefix())
	}
	return t, nil
}

// String is the inverse of Parse.
func (t Target) String() string {
	first := t.Cluster
	if t.View != "" {
		first = "@" + t.View
	}
	return "/" + first + t.servicePrefix() + t.Path + t.Query
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

const servicePath = "/api/v1/namespaces/"

// servicePrefix is the path under which the proxy API has the Service.
func (t Target) servicePrefix() string {
	s := t.Service
	if !t.ForService() {
		return ""
	}
	return servicePath + s.Namespace + "/services/" + s.Protocol + ":" + s.Service + ":" + s.Port + "/proxy-service"
}

// cutService finds upstream's form of a Service in the path:
// /api/v1/namespaces/<namespace>/services/[<scheme>:]<service>[:<port>]/proxy-service/<path>.
// The middle is read as Kubernetes reads it in its own proxy subresource: with
// one colon it is <service>:<port>, so a scheme with an omitted port is
// https:<service>: with both colons.
func (t *Target) cutService() error {
	rest, ok := strings.CutPrefix(t.Path, servicePath)
	if !ok {
		return nil
	}
	parts := strings.SplitN(rest, "/", 5)
	if len(parts) != 5 || parts[1] != "services" || parts[3] != "proxy-service" {
		return nil
	}
	s := agentapi.Service{Protocol: "https", Namespace: parts[0], Service: parts[2]}
	if fields := strings.Split(parts[2], ":"); len(fields) == 2 {
		s.Service, s.Port = fields[0], fields[1]
	} else if len(fields) == 3 {
		s.Protocol, s.Service, s.Port = fields[0], fields[1], fields[2]
		if s.Protocol == "" {
			s.Protocol = "https"
		}
	}
	if s.Protocol != "http" && s.Protocol != "https" {
		return badRequest("scheme %q of a Service must be http or https", s.Protocol)
	}
	if err := s.Check(); err != nil {
		return badRequest("%v", err)
	}
	t.Service, t.Path = s, "/"+parts[4]
	return nil
}

// ParseAuthority takes the target of a CONNECT request apart:
// <cluster>:443 is the cluster's kube-apiserver,
// <service>.<namespace>.svc.<cluster>:<port> one of its Services. A name that
// looks like a Service is one, whatever clusters there are. The error is an *Error.
func ParseAuthority(authority string) (Target, error) {
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		return Target{}, badRequest("the target of CONNECT must be <cluster>:443 or <service>.<namespace>.svc.<cluster>:<port>, and not %q", authority)
	}
	if parts := strings.SplitN(host, ".", 4); len(parts) == 4 && parts[2] == "svc" {
		if err := identity.ValidateCluster(parts[3]); err != nil {
			return Target{}, notFound("the target of CONNECT must be <service>.<namespace>.svc.<cluster>:<port>: %v", err)
		}
		t := Target{Cluster: parts[3], Path: "/", Service: agentapi.Service{Protocol: "tcp", Namespace: parts[1], Service: parts[0], Port: port}}
		if port == "" {
			return Target{}, badRequest("the target of CONNECT must have a port")
		}
		if err := t.Service.Check(); err != nil {
			return Target{}, badRequest("%v", err)
		}
		return t, nil
	}
	if err := identity.ValidateCluster(host); err != nil {
		return Target{}, notFound("the target of CONNECT must be <cluster>:443: %v", err)
	}
	if port != "443" {
		return Target{}, badRequest("the target of CONNECT must be <cluster>:443, and not port %q", port)
	}
	return Target{Cluster: host, Path: "/"}, nil
}
