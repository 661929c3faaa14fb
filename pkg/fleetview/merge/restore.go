package merge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/yaml"
)

// Restorer is the inverse of Rewriter, for what users write to one cluster. It removes the
// annotations of the view, makes metadata.resourceVersion the member's own, and cuts
// @CLUSTER off metadata.name, metadata.namespace and the names of owners. It removes the
// view's label, and cuts @CLUSTER off the names in Places. Preconditions of DeleteOptions, and those of an Eviction, are
// restored too; their uid is the member's already. An error means that the write must be
// refused; dst is as before then. Its methods are safe for concurrent use.
type Restorer struct {
	// Cluster is the name of the cluster that is written to.
	Cluster string
	// Annotations are the keys of the view, and Label the one of the label.
	Annotations []string
	Label       string
	// Places are those of the resource.
	Places Places
	// Derived says that names cannot have an @, and that clients make them of other names.
	Derived bool
	// Note gets the fields that may name clusters, if it is set. The appended bytes mean nothing then.
	Note func(Mention)
	// Version returns the member's own version. It returns an error if the version is not
	// one of this cluster's in a view.
	Version func(view string) (string, error)
}

func (r *Restorer) edit() edit {
	return edit{cluster: r.Cluster, annotations: r.Annotations, label: r.Label, places: r.Places, derived: r.Derived, restore: true, note: r.Note, toMember: r.Version}
}

// AppendJSON appends an object in JSON. It may be a part of one: a merge patch, a strategic
// merge patch, or what is applied. A version that is null or empty stays.
func (r *Restorer) AppendJSON(dst, body []byte) ([]byte, error) {
	e := r.edit()
	start := len(dst)
	dst, err := e.appendObject(dst, NewItem(body))
	if err == nil && len(r.Places) > 0 {
		dst, err = e.appendPlaces(dst[:start], slices.Clone(dst[start:]), r.Places)
	}
	if err != nil {
		return dst[:start], err
	}
	key, err := typeOfJSON(body)
	if err != nil {
		return dst[:start], err
	}
	var path []string
	switch {
	case key.Kind == "DeleteOptions":
		path = []string{"preconditions"}
	case isEviction(key.APIVersion, key.Kind):
		path = []string{"deleteOptions", "preconditions"}
	default:
		return dst, nil
	}
	restored := append([]byte(nil), dst[start:]...)
	if dst, err = e.appendPreconditions(dst[:start], restored, path); err != nil {
		return dst[:start], err
	}
	return dst, nil
}

// AppendDeleteOptions appends the DeleteOptions in JSON that are the body of a DELETE. They
// need not say their kind.
func (r *Restorer) AppendDeleteOptions(dst, body []byte) ([]byte, error) {
	e := r.edit()
	start := len(dst)
	dst, err := e.appendPreconditions(dst, body, []string{"preconditions"})
	if err != nil {
		return dst[:start], err
	}
	return dst, nil
}

// AppendYAML appends an object that is in YAML or JSON, as the body of a server-side apply
// is. The result is JSON, which is YAML too.
func (r *Restorer) AppendYAML(dst, body []byte) ([]byte, error) {
	converted, err := fromYAML(body)
	if err != nil {
		return dst, err
	}
	return r.AppendJSON(dst, converted)
}

// maxMarks bounds the lines and marks of YAML, each of which may be a value that takes 300
// bytes while it is read. A CRD of 500 KiB has 40,000.
const maxMarks = 100_000

// fromYAML returns the JSON of a document in YAML, which JSON is too.
func fromYAML(body []byte) ([]byte, error) {
	if json.Valid(body) {
		return body, nil
	}
	marks := 0
	for _, c := range body {
		if strings.IndexByte("\n,:-?[{", c) >= 0 {
			marks++
		}
	}
	if marks > maxMarks {
		return nil, fmt.Errorf("reading YAML: it has more than %d lines and marks: send it as JSON", maxMarks)
	}
	converted, err := yaml.YAMLToJSON(body)
	if err != nil {
		return nil, fmt.Errorf("reading YAML: %w", err)
	}
	return converted, nil
}

// typeOfJSON returns the kind and apiVersion of an object whose syntax is right.
func typeOfJSON(object []byte) (Key, error) {
	var key Key
	var kind, apiVersion bool
	m := Walk(object, 0)
	for m.More() {
		switch string(m.Key) {
		case "kind":
			m.textOnce(&kind, &key.Kind)
		case "apiVersion":
			m.textOnce(&apiVersion, &key.APIVersion)
		default:
			m.skip()
		}
	}
	return key, m.end()
}

func isEviction(apiVersion, kind string) bool {
	return kind == "Eviction" && strings.HasPrefix(apiVersion, "policy/")
}

// appendPreconditions appends an object with the preconditions restored that are at path.
func (e *edit) appendPreconditions(dst, object []byte, path []string) ([]byte, error) {
	m := Walk(object, 0)
	dst = e.appendAt(dst, &m, path)
	return dst, m.end()
}

// appendAt appends the object that m walks, with the resourceVersion restored that is in the
// object at path.
func (e *edit) appendAt(dst []byte, m *members, path []string) []byte {
	name := "resourceVersion"
	if len(path) > 0 {
		name = path[0]
	}
	seen := false
	dst = append(dst, '{')
	for m.More() {
		switch {
		case string(m.Key) != name:
			m.skip()
		case !m.once(&seen):
			return dst
		case len(path) == 0:
			dst = e.appendVersion(dst, m)
			continue
		case m.data[m.Value] == '{':
			dst = appendMember(dst, m.data[m.start:m.Value])
			in := Walk(m.data, m.Value)
			dst = e.appendAt(dst, &in, path[1:])
			if m.Next = in.Next; in.Err != nil {
				m.fail(fmt.Errorf("reading %q: %w", name, in.Err))
			}
			continue
		default:
			m.skip()
		}
		if m.Err == nil {
			dst = appendMember(dst, m.data[m.start:m.Next])
		}
	}
	return append(dst, '}')
}

// Numbers of fields of DeleteOptions, Preconditions and Eviction.
const (
	optionsPreconditions = 2
	preconditionsVersion = 2
	evictionOptions      = 2
)

// AppendProtobuf appends a document in protobuf, with its envelope.
func (r *Restorer) AppendProtobuf(dst, body []byte) ([]byte, error) {
	envelope, err := openEnvelope(body)
	if err != nil {
		return dst, err
	}
	e := r.edit()
	start := len(dst)
	dst = envelope.append(dst)
	raw := len(dst)
	switch {
	case envelope.kind == "DeleteOptions":
		dst, err = e.appendProtobufAt(dst, envelope.raw, optionsPreconditions, preconditionsVersion)
	case isEviction(envelope.apiVersion, envelope.kind):
		var object []byte
		if object, err = e.appendProtobufObject(nil, envelope.raw); err == nil {
			dst, err = e.appendProtobufAt(dst, object, evictionOptions, optionsPreconditions, preconditionsVersion)
		}
	default:
		if dst, err = e.appendProtobufObject(dst, envelope.raw); err == nil {
			dst, err = e.appendProtobufPlaces(dst[:raw], slices.Clone(dst[raw:]), r.Places, 0)
		}
	}
	if err != nil {
		return dst[:start], err
	}
	return closeField(dst, raw, unknownRaw), nil
}

// appendProtobufAt appends a message with the version restored that is in the field at path.
func (e *edit) appendProtobufAt(dst, message []byte, path ...protowire.Number) (_ []byte, err error) {
	seen := false
	for len(message) > 0 {
		var f field
		if f, message, err = nextField(message); err != nil {
			return dst, err
		}
		if f.number != path[0] {
			dst = append(dst, f.text...)
			continue
		}
		if err := f.known(&seen); err != nil {
			return dst, err
		}
		start := len(dst)
		if len(path) == 1 {
			version, err := e.version(string(f.content))
			if err != nil {
				return dst, fmt.Errorf("translating resourceVersion %q: %w", f.content, err)
			}
			dst = append(dst, version...)
		} else if dst, err = e.appendProtobufAt(dst, f.content, path[1:]...); err != nil {
			return dst, err
		}
		dst = closeField(dst, start, f.number)
	}
	return dst, nil
}
