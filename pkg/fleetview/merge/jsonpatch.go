package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// operation is one operation of a JSON patch (RFC 6902).
type operation map[string]json.RawMessage

// maxOperations is how many operations of a JSON patch a kube-apiserver takes.
const maxOperations = 10_000

// AppendJSONPatch appends a JSON patch: an array of operations. Versions and names that they
// test or set are restored, alone and within metadata. Operations on the annotations of the
// view are left out, but a test that fails in the view is an error.
func (r *Restorer) AppendJSONPatch(dst, body []byte) ([]byte, error) {
	patch, err := Elements(body, maxOperations)
	if err != nil {
		return dst, fmt.Errorf("reading a JSON patch: %w", err)
	}
	kept := make([]operation, 0, len(patch))
	for i, raw := range patch {
		var o operation
		if err := json.Unmarshal(raw, &o); err != nil {
			return dst, fmt.Errorf("reading operation %d of the JSON patch: %w", i, err)
		}
		keep, err := r.restore(o)
		if err != nil {
			return dst, fmt.Errorf("reading operation %d of the JSON patch: %w", i, err)
		}
		if keep {
			kept = append(kept, o)
		}
	}
	encoded, err := json.Marshal(kept)
	if err != nil {
		return dst, fmt.Errorf("encoding a JSON patch: %w", err)
	}
	return append(dst, encoded...), nil
}

// text returns a member of the operation that is a string.
func (o operation) text(name string) (s string, err error) {
	if raw, ok := o[name]; ok {
		if err := json.Unmarshal(raw, &s); err != nil {
			return "", fmt.Errorf("reading %q: %w", name, err)
		}
	}
	return s, nil
}

// restore changes an operation, and reports whether it is kept.
func (r *Restorer) restore(o operation) (bool, error) {
	op, err := o.text("op")
	if err != nil {
		return false, err
	}
	path, err := o.text("path")
	if err != nil {
		return false, err
	}
	from, err := o.text("from")
	if err != nil {
		return false, err
	}
	if (op == "copy" || op == "move") && r.ours(pointer(from)) {
		return false, fmt.Errorf("%q is an annotation or a label of the view: it cannot be copied or moved", from)
	}
	tokens := pointer(path)
	if r.ours(tokens) {
		return false, r.testOurs(op, o["value"])
	}
	value, ok := o["value"]
	if !ok || (op != "test" && op != "add" && op != "replace") {
		return true, nil
	}
	restored, err := r.restoreValue(tokens, value)
	if err == nil {
		o["value"] = restored
	}
	return true, err
}

// ours reports whether a pointer leads to an annotation or a label of the view.
func (r *Restorer) ours(tokens []string) bool {
	last := len(tokens) - 1
	if last < 1 {
		return false
	}
	switch in := tokens[:last]; {
	case slices.Equal(in, []string{"metadata", "annotations"}):
		return slices.Contains(r.Annotations, tokens[last])
	case tokens[last] != r.Label:
		return false
	default:
		return slices.Equal(in, []string{"metadata", "labels"}) || r.Places.has(in)
	}
}

// testOurs makes the test that an operation makes of an annotation or a label of the view.
func (r *Restorer) testOurs(op string, value json.RawMessage) error {
	var s string
	if op == "test" && (json.Unmarshal(value, &s) != nil || s != r.Cluster) {
		return errors.New("testing an annotation or a label of the view: it has another value")
	}
	return nil
}

// restoreValue returns the restored value of what a pointer leads to.
func (r *Restorer) restoreValue(tokens []string, value json.RawMessage) (json.RawMessage, error) {
	switch {
	case len(tokens) == 0:
		return r.AppendJSON(nil, value)
	case tokens[0] != "metadata" && len(r.Places.within(0, tokens[0])) == 0:
		return value, nil
	}
	// The value is restored as a part of an object.
	var object any = value
	for _, token := range slices.Backward(tokens) {
		object = map[string]any{token: object}
	}
	encoded, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("reading a value: %w", err)
	}
	restored, err := r.AppendJSON(nil, encoded)
	if err != nil {
		return nil, err
	}
	for _, token := range tokens {
		var object map[string]json.RawMessage
		if err := json.Unmarshal(restored, &object); err != nil {
			return nil, fmt.Errorf("reading a value: %w", err)
		}
		if restored = object[token]; restored == nil {
			return json.RawMessage("{}"), nil // only ours were there
		}
	}
	return restored, nil
}

// pointer returns the tokens of a JSON pointer (RFC 6901).
func pointer(path string) []string {
	if path == "" {
		return nil
	}
	tokens := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, token := range tokens {
		tokens[i] = strings.ReplaceAll(strings.ReplaceAll(token, "~1", "/"), "~0", "~")
	}
	return tokens
}
