package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// ParseOpenAPIIndex reads an answer of /openapi/v3: the hash of each document, by the
// document's path below /openapi/v3/. A document without hash has an empty one.
func ParseOpenAPIIndex(body []byte, b *Budget) (map[string]string, error) {
	var hashes map[string]string
	n := 0
	d := open(body, b)
	err := d.read(func(key []byte) {
		if string(key) != "paths" {
			d.skip()
			return
		}
		hashes = map[string]string{}
		d.object(func(key []byte) {
			path := d.name(key, &n, maxDocuments, "OpenAPI documents")
			hash := d.hash()
			if d.err == nil && isDocumentPath(path) {
				hashes[path] = hash
			}
		})
	})
	if err == nil && hashes == nil {
		err = errors.New("it has no paths")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the index of OpenAPI documents: %w", err)
	}
	return hashes, nil
}

// name is the key of a map that is kept, and counts it.
func (d *document) name(key []byte, n *int, most int, what string) string {
	if !d.count(n, most, what) {
		return ""
	}
	if len(key) > maxText {
		d.fail(fmt.Errorf("%w: a name has more than %d bytes", ErrLimit, maxText))
	}
	d.hold(len(key) + mapEntry)
	return string(key)
}

// mapEntry is about what an entry of a map takes beside its texts.
const mapEntry = 96

// hash reads the hash in an entry of the index of OpenAPI documents.
func (d *document) hash() (hash string) {
	d.object(func(key []byte) {
		if string(key) != "serverRelativeURL" {
			d.skip()
		} else if u, err := url.Parse(d.text()); err == nil {
			hash = u.Query().Get("hash")
		}
	})
	return hash
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

// ParseSwagger reads an OpenAPI v2 document. The Swagger has parts of body, which must not
// change.
func ParseSwagger(body []byte, b *Budget) (*Swagger, error) {
	s := &Swagger{top: map[string]json.RawMessage{}, paths: map[string]json.RawMessage{}, definitions: map[string]json.RawMessage{}}
	version, tops, paths, definitions := "", 0, 0, 0
	d := open(body, b)
	err := d.read(func(key []byte) {
		switch name := d.name(key, &tops, maxSwaggerParts, "parts"); name {
		case "swagger":
			version = d.text()
			s.top[name] = json.RawMessage(swaggerVersion)
		case "paths":
			d.parts(s.paths, &paths, name)
		case "definitions":
			d.parts(s.definitions, &definitions, name)
		default:
			s.top[name] = d.skip()
		}
	})
	if err == nil && version != "2.0" {
		err = fmt.Errorf("swagger is %.20q, want \"2.0\"", version)
	}
	if err != nil {
		return nil, fmt.Errorf("reading an OpenAPI v2 document: %w", err)
	}
	return s, nil
}

const (
	swaggerVersion  = `"2.0"`
	maxSwaggerParts = 100 // an OpenAPI v2 document may have fourteen and extensions
)

// parts reads an object of which the values stay as they are.
func (d *document) parts(into map[string]json.RawMessage, n *int, what string) {
	d.object(func(key []byte) {
		name := d.name(key, n, maxPaths, what)
		if value := d.skip(); d.err == nil {
			into[name] = value
		}
	})
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
// definitions that those refer to. The definitions of s stay as they are: one of both is s's.
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
		references(part, func(name string) {
			definition, ok := other.definitions[name]
			if _, known := s.definitions[name]; known || !ok {
				return
			}
			s.definitions[name] = definition
			queue = append(queue, definition)
		})
	}
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

// references calls found with the names of the definitions that a part of an OpenAPI v2
// document refers to.
func references(part []byte, found func(name string)) {
	d := open(part, &Budget{})
	var value func()
	value = func() {
		switch d.first() {
		case '{':
			d.object(func(key []byte) {
				if !bytes.Equal(key, []byte("$ref")) || d.first() != '"' {
					value()
				} else if name, ok := bytes.CutPrefix(d.skip(), []byte(`"#/definitions/`)); ok {
					if text, err := merge.Unquote(append([]byte{'"'}, name...)); err == nil {
						found(text)
					}
				}
			})
		case '[':
			d.array(value)
		default:
			d.skip()
		}
	}
	value()
}
