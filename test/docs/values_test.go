package docs

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// schema is the part of a JSON schema that says what a value is.
type schema struct {
	Type        any
	Description string
	Enum        []any
	Properties  map[string]schema
}

// kind is the type, or the values that there are.
func (s schema) kind() string {
	var words []string
	for _, value := range s.Enum {
		words = append(words, fmt.Sprintf("`%v`", value))
	}
	if words != nil {
		return "one of " + strings.Join(words, " ")
	}
	switch kind := s.Type.(type) {
	case []any:
		for _, one := range kind {
			words = append(words, fmt.Sprint(one))
		}
		return strings.Join(words, " or ")
	case string:
		return kind
	}
	return "any"
}

// at returns what the schema says of a value, as far as it goes.
func (s schema) at(path []string) (found schema) {
	for found = s; len(path) > 0; path = path[1:] {
		found = found.Properties[path[0]]
	}
	return found
}

var (
	entry    = regexp.MustCompile(`^( *)([A-Za-z]\w*):(?: (.*))?$`)
	comment  = regexp.MustCompile(`^ *# ?(.*)$`)
	trailing = regexp.MustCompile(`\s+# .*$`)
)

// values are those of the chart, in the order of values.yaml, with its comments: after "--" they are about the next value, before
// it about those that follow.
func values(t *testing.T) string {
	var all schema
	if err := json.Unmarshal([]byte(read(t, "../../charts/cluster-proxy/values.schema.json")), &all); err != nil {
		t.Fatal(err)
	}
	var single, groups strings.Builder
	var path, comments []string
	shown := map[string]bool{}
	for line := range strings.Lines(read(t, "../../charts/cluster-proxy/values.yaml")) {
		line = strings.TrimRight(line, "\n")
		if text := comment.FindStringSubmatch(line); text != nil {
			comments = append(comments, text[1])
			continue
		}
		about, text, found := strings.Cut(strings.Join(comments, "\n"), "-- ")
		if !found {
			about, text = "", about
		}
		comments = nil
		key := entry.FindStringSubmatch(line)
		if key == nil {
			if strings.TrimSpace(line) != "" {
				t.Errorf("values.yaml has a line that this test cannot read: %q", line)
			}
			continue
		}
		path = append(slices.Clone(path[:len(key[1])/2]), key[2])
		name, out := strings.Join(path, "."), &groups
		shown[name] = true
		if key[3] == "" {
			fmt.Fprintf(out, "\n%s `%s`\n\n%s\n\n", strings.Repeat("#", min(len(path)+1, 4)), name, fill(escape(about+" "+text), ""))
			continue
		}
		if len(path) == 1 {
			out = &single
		}
		if about != "" {
			fmt.Fprintf(out, "\n%s\n\n", fill(escape(about), ""))
		}
		kind := all.at(path).kind()
		if kind == "any" {
			t.Errorf("values.schema.json says no type of %s", name)
		}
		out.WriteString(item("`"+name+"`", kind+", default `"+trailing.ReplaceAllString(key[3], "")+"`", text))
	}
	var rest strings.Builder
	for _, name := range described(all, nil) {
		if value := all.at(strings.Split(name, ".")); !shown[name] {
			rest.WriteString(item("`"+name+"`", value.kind(), value.Description))
		}
	}
	page := "## Values on their own\n\n" + single.String() + groups.String() + "\n## Values without a default\n\n" + rest.String()
	return regexp.MustCompile(`\n{3,}`).ReplaceAllString(page, "\n\n")
}

// described are the values with a text in the schema.
func described(s schema, path []string) (names []string) {
	for name, property := range s.Properties {
		path := append(slices.Clone(path), name)
		if property.Description != "" {
			names = append(names, strings.Join(path, "."))
		}
		names = append(names, described(property, path)...)
	}
	slices.Sort(names)
	return names
}
