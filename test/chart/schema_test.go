package chart

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const schemaFile = "../../charts/cluster-proxy/values.schema.json"

// TestSchemaDescribes holds the descriptions in the schema to the comments in values.yaml that begin
// with "# --". hack/update-texts.sh writes them.
func TestSchemaDescribes(t *testing.T) {
	content, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	values, err := os.ReadFile("../../charts/cluster-proxy/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(content, &schema); err != nil {
		t.Fatal(err)
	}
	described := describe(t, schema, string(values))
	if described < 80 {
		t.Errorf("values.yaml describes %d values: something is wrong with its comments, or with the test", described)
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(content), out.String()); diff != "" {
		t.Errorf("values.schema.json does not say what values.yaml says; run: hack/update-texts.sh (-file +want):\n%s", diff)
	}
}

var valueLine = regexp.MustCompile(`^( *)([A-Za-z0-9]+):`)

// describe sets the description of each value, and returns how many have one.
func describe(t *testing.T, schema map[string]any, values string) (n int) {
	t.Helper()
	var path, comment []string
	for line := range strings.Lines(values) {
		line = strings.TrimRight(line, "\n")
		text, isComment := strings.CutPrefix(strings.TrimSpace(line), "#")
		switch text = strings.TrimSpace(text); {
		case isComment && strings.HasPrefix(text, "-- "):
			comment = []string{strings.TrimPrefix(text, "-- ")}
			continue
		case isComment && comment != nil:
			comment = append(comment, text)
			continue
		}
		key := valueLine.FindStringSubmatch(line)
		if key != nil && !isComment {
			path = append(path[:len(key[1])/2], key[2])
			at := schema
			for _, name := range path {
				properties, _ := at["properties"].(map[string]any)
				if at, _ = properties[name].(map[string]any); at == nil {
					break // an object whose fields the schema leaves to Kubernetes
				}
			}
			if at != nil && comment != nil {
				at["description"] = strings.Join(comment, " ")
				n++
			} else if comment != nil {
				t.Errorf("the schema does not have %s", strings.Join(path, "."))
			}
		}
		comment = nil
	}
	return n
}
