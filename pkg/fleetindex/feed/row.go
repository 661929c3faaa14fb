package feed

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a row and of a definition.
const (
	// MaxRow is how many bytes the texts of a row have together.
	MaxRow = 16 << 10
	// MaxText is how many bytes one text has: a cell, a label's value, an image.
	MaxText = 1 << 10
	// MaxCells, MaxLabels and MaxImages bound how many of each a row has.
	MaxCells, MaxLabels, MaxImages = 64, 128, 64
	// MaxDefinition is how many bytes the texts of a definition have together.
	MaxDefinition = 32 << 10
	// maxName bounds names of objects, namespaces and nodes, and maxVersion resourceVersions and UIDs.
	maxName, maxVersion = 253, 128
)

// Resource names a resource of a Kubernetes API, in any version.
type Resource struct {
	Group    string `json:"group,omitempty"`
	Resource string `json:"resource"`
}

// ParseResource parses resource.group. There are no Secrets in an index, and no subresources.
func ParseResource(text string) (Resource, error) {
	resource, group, _ := strings.Cut(text, ".")
	switch {
	case resource == "" || strings.Trim(text, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "":
		return Resource{}, errors.New("it must be RESOURCE or RESOURCE.GROUP in lower case")
	case resource == "secrets":
		return Resource{}, errors.New("no Secrets are indexed")
	}
	return Resource{Group: group, Resource: resource}, nil
}

// String returns resource.group, as kubectl takes it.
func (r Resource) String() string {
	if r.Group == "" {
		return r.Resource
	}
	return r.Resource + "." + r.Group
}

// Definition is what a cluster says of a resource.
type Definition struct {
	Resource
	// Version is the version of the group in which the Table was asked for.
	Version    string   `json:"version"`
	Kind       string   `json:"kind"`
	Namespaced bool     `json:"namespaced,omitempty"`
	Columns    []Column `json:"columns"`
}

// Column is a metav1.TableColumnDefinition, and whether its cells are null in rows because they
// are the object's age, which is computed when it is shown.
type Column struct {
	Name        string `json:"name"`
	Type        string `json:"type"`
	Format      string `json:"format,omitempty"`
	Description string `json:"description,omitempty"`
	Priority    int32  `json:"priority,omitempty"`
	Age         bool   `json:"age,omitempty"`
}

// StatusColumn returns the column that says in which state an object is, or -1.
func (d Definition) StatusColumn() int {
	for _, name := range []string{"Status", "Phase", "State"} {
		for i, column := range d.Columns {
			if strings.EqualFold(column.Name, name) {
				return i
			}
		}
	}
	return -1
}

// Check refuses a definition that the index does not take.
func (d Definition) Check() error {
	if len(d.Columns) > MaxCells {
		return fmt.Errorf("%s has %d columns, more than %d", d.Resource, len(d.Columns), MaxCells)
	}
	if d.Resource.Resource == "" || d.Kind == "" || d.Version == "" {
		return errors.New("a definition needs a resource, a version and a kind")
	}
	t := texts{left: MaxDefinition}
	for _, name := range []string{d.Group, d.Resource.Resource, d.Version, d.Kind} {
		t.add("name", name, maxName)
	}
	for _, c := range d.Columns {
		t.add("column", c.Name, maxName)
		t.add("type", c.Type, maxName)
		t.add("format", c.Format, maxName)
		t.left -= len(c.Description)
	}
	return t.result()
}

// CutText returns a text with at most MaxText bytes, all of them UTF-8.
func CutText(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), MaxText)], "")
}

// Key names an object within a resource of a cluster. Namespace is empty if the resource has none.
type Key struct {
	Namespace string `json:"ns,omitempty"`
	Name      string `json:"name"`
}

func (k Key) addTo(t *texts) {
	t.add("namespace", k.Namespace, maxName)
	t.add("name", k.Name, maxName)
}

// Row is what the index keeps of one object.
type Row struct {
	Key
	UID     string `json:"uid"`
	Version string `json:"rv"`
	// Created and Deleted are seconds since 1970; Deleted is 0 unless the object is being deleted.
	Created int64             `json:"created,omitempty"`
	Deleted int64             `json:"deleted,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	// Owner is the controller that the object belongs to, as Kind/name.
	Owner  string   `json:"owner,omitempty"`
	Images []string `json:"images,omitempty"`
	Node   string   `json:"node,omitempty"`
	// Cells is a JSON array with a scalar for each column of the definition.
	Cells json.RawMessage `json:"cells"`
}

// Values returns the cells.
func (r *Row) Values() ([]any, error) {
	if len(r.Cells) > MaxRow {
		return nil, fmt.Errorf("the cells have %d bytes, more than %d", len(r.Cells), MaxRow)
	}
	if !utf8.Valid(r.Cells) {
		return nil, errors.New("the cells are not UTF-8")
	}
	var values []any
	decoder := json.NewDecoder(bytes.NewReader(r.Cells))
	decoder.UseNumber()
	if err := decoder.Decode(&values); err != nil {
		return nil, fmt.Errorf("parsing the cells: %w", err)
	}
	return values, nil
}

// Size returns how many bytes the texts of a row have.
func (r *Row) Size() int {
	size := len(r.Namespace) + len(r.Name) + len(r.UID) + len(r.Version) + len(r.Owner) + len(r.Node) + len(r.Cells)
	for key, value := range r.Labels {
		size += len(key) + len(value)
	}
	for _, image := range r.Images {
		size += len(image)
	}
	return size
}

// Check refuses a row that the index does not take.
func (r *Row) Check(d Definition) error {
	if size := r.Size(); size > MaxRow {
		return fmt.Errorf("a row has texts of %d bytes, more than the bound of %d", size, MaxRow)
	}
	switch {
	case r.Name == "" || r.UID == "":
		return errors.New("a row needs a name and a UID")
	case d.Namespaced != (r.Namespace != ""):
		return fmt.Errorf("%q has the namespace %q, which does not go with %s", r.Name, r.Namespace, d.Resource)
	case !isVersion(r.Version):
		return fmt.Errorf("%q has the resourceVersion %q, which is no number", r.Name, r.Version)
	case len(r.Labels) > MaxLabels || len(r.Images) > MaxImages:
		return fmt.Errorf("%q has %d labels and %d images, and may have %d and %d", r.Name, len(r.Labels), len(r.Images), MaxLabels, MaxImages)
	}
	t := texts{left: 2 * MaxRow} // cells are added once more
	r.Key.addTo(&t)
	t.add("UID", r.UID, maxVersion)
	t.add("owner", r.Owner, 2*maxName)
	t.add("node", r.Node, maxName)
	for key, value := range r.Labels {
		t.add("label", key, MaxText)
		t.add("label", value, MaxText)
	}
	for _, image := range r.Images {
		t.add("image", image, MaxText)
	}
	if err := t.result(); err != nil {
		return err
	}
	values, err := r.Values()
	if err != nil {
		return err
	}
	if len(values) != len(d.Columns) {
		return fmt.Errorf("%q has %d cells for %d columns", r.Name, len(values), len(d.Columns))
	}
	for _, value := range values {
		switch value := value.(type) {
		case string:
			t.add("cell", value, MaxText)
		case []any, map[string]any:
			return fmt.Errorf("%q has a cell that is no scalar", r.Name)
		}
	}
	return t.result()
}

// isVersion reports whether a resourceVersion can be compared with others
// (k8s.io/apimachinery/pkg/util/resourceversion).
func isVersion(version string) bool {
	return version != "" && version[0] != '0' && len(version) <= maxVersion && strings.Trim(version, "0123456789") == ""
}

// texts adds up texts and remembers the first that is refused.
type texts struct {
	left int
	err  error
}

func (t *texts) add(what, text string, most int) {
	t.left -= len(text)
	switch {
	case t.err != nil:
	case len(text) > most:
		t.err = fmt.Errorf("a %s has %d bytes, more than %d", what, len(text), most)
	case !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl):
		t.err = fmt.Errorf("the %s %q has control characters or is not UTF-8", what, text)
	}
}

func (t *texts) result() error {
	if t.err == nil && t.left < 0 {
		return fmt.Errorf("the texts have %d bytes more than the bound", -t.left)
	}
	return t.err
}
