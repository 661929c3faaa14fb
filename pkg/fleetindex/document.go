package fleetindex

import (
	"database/sql/driver"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
)

// maxDocument bounds the words of a row.
const maxDocument = 1000

// document is the words of a row: fields of words in sequence, by column.
type document struct{ content, labels, images [][]string }

// newDocument makes the words of a row. values are its cells.
func newDocument(r *feed.Row, values []any) document {
	var d document
	left := maxDocument
	add := func(fields *[][]string, text string) {
		words := query.Words(text)
		words = words[:min(len(words), left)]
		if len(words) > 0 {
			left -= len(words)
			*fields = append(*fields, words)
		}
	}
	for _, text := range []string{r.Name, r.Namespace, r.Owner, r.Node} {
		add(&d.content, text)
	}
	for _, value := range values {
		if text, ok := value.(string); ok && text != r.Name && text != r.Node {
			add(&d.content, text)
		}
	}
	for _, image := range r.Images {
		add(&d.images, image)
	}
	for _, key := range slices.Sorted(maps.Keys(r.Labels)) {
		add(&d.labels, key+"="+r.Labels[key])
	}
	return d
}

// fts5 returns the columns of SQLite's table of words.
func (d document) fts5() (content, labels, images string) {
	join := func(fields [][]string) string {
		texts := make([]string, len(fields))
		for i, words := range fields {
			texts[i] = strings.Join(words, " ")
		}
		return strings.Join(texts, " | ")
	}
	return join(d.content), join(d.labels), join(d.images)
}

// tsvector returns PostgreSQL's vector of words. It is written out, because the parsers of
// PostgreSQL take some words for numbers, hosts or versions.
func (d document) tsvector() string {
	var b strings.Builder
	position := 0
	for _, column := range []struct {
		fields [][]string
		weight string
	}{{d.content, ""}, {d.labels, "C"}, {d.images, "B"}} {
		for _, words := range column.fields {
			for _, word := range words {
				position++
				b.WriteString("'" + word + "':" + strconv.Itoa(position) + column.weight + " ")
			}
			position++ // no phrase goes across fields
		}
	}
	return b.String()
}

// writeLabels returns labels as one text in which a label can be found: a newline before and after each.
func writeLabels(labels map[string]string) string {
	if len(labels) == 0 {
		return ""
	}
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		b.WriteString("\n" + key + "=" + labels[key])
	}
	return b.String() + "\n"
}

// readLabels is the inverse of writeLabels.
func readLabels(text string) map[string]string {
	if text == "" {
		return nil
	}
	labels := map[string]string{}
	for line := range strings.SplitSeq(strings.Trim(text, "\n"), "\n") {
		key, value, _ := strings.Cut(line, "=")
		labels[key] = value
	}
	return labels
}

// namespace is one as it is stored: with a / behind it, so that rows are in the order of a kube-apiserver's keys, in which a-b/x comes
// before a/x. Objects in no namespace have the empty one.
type namespace string

// Value writes a namespace.
func (n namespace) Value() (driver.Value, error) {
	if n == "" {
		return "", nil
	}
	return string(n) + "/", nil
}

// Scan reads a namespace.
func (n *namespace) Scan(stored any) error {
	text, ok := stored.(string)
	if !ok {
		return fmt.Errorf("a namespace is stored as %T", stored)
	}
	*n = namespace(strings.TrimSuffix(text, "/"))
	return nil
}

// plainNamespace is the column of namespaces as searches compare it.
const plainNamespace = "rtrim(r.namespace, '/')"
