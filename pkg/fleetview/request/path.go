package request

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
)

// Path is the path of a request for a resource, by its escaped segments.
type Path struct {
	segments []string
	// slash is what follows the last segment: it matters to what is behind a proxy.
	slash string
	// resource and name are the places of these segments; name is len(segments) in the
	// path of a collection.
	resource, name int
}

// newPath takes a path apart that info was read from. It refuses paths in which a member
// could see another resource or name than info has.
func newPath(u *url.URL, info *apirequest.RequestInfo) (Path, error) {
	escaped := strings.TrimLeft(u.EscapedPath(), "/")
	trimmed := strings.TrimRight(escaped, "/")
	p := Path{segments: strings.Split(trimmed, "/")}
	decoded := strings.Split(strings.Trim(u.Path, "/"), "/")
	// info.Parts are the decoded segments from the resource on.
	p.resource = len(decoded) - len(info.Parts)
	p.name = min(p.resource+1, len(p.segments))
	subresource := p.resource + 2
	if len(p.segments) > subresource {
		p.slash = escaped[len(trimmed):]
	}
	for i, segment := range p.segments[:min(subresource+1, len(p.segments))] {
		// Encoded slashes at the end are no segment of the decoded path.
		if plain, err := url.PathUnescape(segment); err != nil || plain == "" || i >= len(decoded) || plain != decoded[i] {
			return Path{}, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("path %q has an empty segment, or a slash within one", u.EscapedPath()))
		}
	}
	if slices.ContainsFunc(decoded, func(segment string) bool { return segment == "." || segment == ".." }) {
		return Path{}, fault.Refuse(http.StatusBadRequest, fmt.Sprintf("path %q has a segment of dots only", u.EscapedPath()))
	}
	return p, nil
}

// Named returns the path with another name.
func (p Path) Named(name string) Path {
	p.segments = slices.Clone(p.segments)
	p.segments[p.name] = url.PathEscape(name)
	return p
}

// within returns the path with another namespace, which is before the resource.
func (p Path) within(namespace string) Path {
	p.segments = slices.Clone(p.segments)
	p.segments[p.resource-1] = url.PathEscape(namespace)
	return p
}

// in returns the path of a collection in one namespace.
func (p Path) in(namespace string) Path {
	p.segments = slices.Insert(slices.Clone(p.segments), p.resource, "namespaces", url.PathEscape(namespace))
	p.resource, p.name = p.resource+2, p.name+2
	return p
}

// Object returns the path without subresources.
func (p Path) Object() Path {
	p.segments, p.slash = p.segments[:p.name+1], ""
	return p
}

// String is the escaped path.
func (p Path) String() string { return "/" + strings.Join(p.segments, "/") + p.slash }

// URL is the path with a query.
func (p Path) URL(query string) *url.URL {
	decoded, err := url.PathUnescape(p.String())
	if err != nil {
		panic("fleetview: unescaping a path: " + err.Error()) // it is of a URL that was parsed
	}
	return &url.URL{Path: decoded, RawPath: p.String(), RawQuery: query}
}
