package merge

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ParseOpenAPIIndex reads an answer of /openapi/v3: the hash of each document, by the
// document's path below /openapi/v3/. A document without hash has an empty one.
func ParseOpenAPIIndex(body []byte) (map[string]string, error) {
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := json.Unmarshal(body, &index); err != nil {
		return nil, fmt.Errorf("reading the index of OpenAPI documents: %w", err)
	}
	if index.Paths == nil {
		return nil, fmt.Errorf("reading the index of OpenAPI documents: it has no paths")
	}
	hashes := make(map[string]string, len(index.Paths))
	for path, entry := range index.Paths {
		if !isDocumentPath(path) {
			continue
		}
		hash := ""
		if u, err := url.Parse(entry.ServerRelativeURL); err == nil {
			hash = u.Query().Get("hash")
		}
		hashes[path] = hash
	}
	return hashes, nil
}

// isDocumentPath reports whether path is one as in "apis/apps/v1" or
// ".well-known/openid-configuration".
func isDocumentPath(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if !isSegment(strings.TrimPrefix(segment, ".")) {
			return false
		}
	}
	return true
}

// AppendOpenAPIIndex appends an answer of /openapi/v3 for hashes by path. The prefix is
// what a client's paths have before /openapi/v3.
func AppendOpenAPIIndex(dst []byte, prefix string, hashes map[string]string) ([]byte, error) {
	type entry struct {
		ServerRelativeURL string `json:"serverRelativeURL"`
	}
	paths := make(map[string]entry, len(hashes))
	for path, hash := range hashes {
		u := url.URL{Path: prefix + "/openapi/v3/" + path}
		if hash != "" {
			u.RawQuery = url.Values{"hash": {hash}}.Encode()
		}
		paths[path] = entry{u.String()}
	}
	body, err := json.Marshal(map[string]any{"paths": paths})
	if err != nil {
		return dst, fmt.Errorf("encoding the index of OpenAPI documents: %w", err)
	}
	return append(dst, body...), nil
}

// GroupVersionOf returns the group version that a path is about, as in /apis/apps/v1/… or
// api/v1. It has no version if the path is of a group or of all of them, and false is
// returned if it is neither.
func GroupVersionOf(path string) (schema.GroupVersion, bool) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	for len(segments) < 3 {
		segments = append(segments, "")
	}
	switch segments[0] {
	case "api":
		return schema.GroupVersion{Version: segments[1]}, true
	case "apis":
		return schema.GroupVersion{Group: segments[1], Version: segments[2]}, true
	}
	return schema.GroupVersion{}, false
}

// Swagger is an OpenAPI v2 document to which others are added. Its parts stay as the
// documents have them.
type Swagger struct {
	top, paths, definitions map[string]json.RawMessage
}

// ParseSwagger reads an OpenAPI v2 document.
func ParseSwagger(body []byte) (*Swagger, error) {
	s := &Swagger{}
	if err := json.Unmarshal(body, &s.top); err != nil {
		return nil, fmt.Errorf("reading an OpenAPI v2 document: %w", err)
	}
	var version string
	if err := json.Unmarshal(s.top["swagger"], &version); err != nil || version != "2.0" {
		return nil, fmt.Errorf("reading an OpenAPI v2 document: swagger is %.20q, want \"2.0\"", s.top["swagger"])
	}
	for name, into := range map[string]*map[string]json.RawMessage{"paths": &s.paths, "definitions": &s.definitions} {
		if part, ok := s.top[name]; ok {
			if err := json.Unmarshal(part, into); err != nil {
				return nil, fmt.Errorf("reading %s of an OpenAPI v2 document: %w", name, err)
			}
		}
		if *into == nil {
			*into = map[string]json.RawMessage{}
		}
	}
	return s, nil
}

// Filter removes the paths of group versions that keep does not report.
func (s *Swagger) Filter(keep func(schema.GroupVersion) bool) {
	for path := range s.paths {
		if gv, ok := GroupVersionOf(path); ok && !keep(gv) {
			delete(s.paths, path)
		}
	}
}

// Add adds the other document's paths of group versions that wanted reports, and the
// definitions that those refer to. What s has stays as it is: a definition of both is s's.
func (s *Swagger) Add(other *Swagger, wanted func(schema.GroupVersion) bool) {
	var queue []json.RawMessage
	for path, item := range other.paths {
		gv, ok := GroupVersionOf(path)
		if _, known := s.paths[path]; known || !ok || !wanted(gv) {
			continue
		}
		s.paths[path] = item
		queue = append(queue, item)
	}
	for len(queue) > 0 {
		part := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for _, name := range references(part) {
			definition, ok := other.definitions[name]
			if _, known := s.definitions[name]; known || !ok {
				continue
			}
			s.definitions[name] = definition
			queue = append(queue, definition)
		}
	}
}

// references returns the names of the definitions that a part of a document refers to.
func references(part json.RawMessage) []string {
	var names []string
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, value := range v {
				ref, isString := value.(string)
				if name, ok := strings.CutPrefix(ref, "#/definitions/"); key == "$ref" && isString && ok {
					names = append(names, name)
				}
				walk(value)
			}
		case []any:
			for _, value := range v {
				walk(value)
			}
		}
	}
	var v any
	if json.Unmarshal(part, &v) == nil { // it is JSON: it was parsed
		walk(v)
	}
	return names
}

// JSON returns the document.
func (s *Swagger) JSON() ([]byte, error) {
	for name, part := range map[string]map[string]json.RawMessage{"paths": s.paths, "definitions": s.definitions} {
		body, err := json.Marshal(part)
		if err != nil {
			return nil, fmt.Errorf("encoding %s of an OpenAPI v2 document: %w", name, err)
		}
		s.top[name] = body
	}
	body, err := json.Marshal(s.top)
	if err != nil {
		return nil, fmt.Errorf("encoding an OpenAPI v2 document: %w", err)
	}
	return body, nil
}
