package fleetindexer

import (
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex"
	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/feed"
)

// unknownAge is what kube-apiserver prints as the age of an object without a creation time.
const unknownAge = "<unknown>"

// table is a metav1.Table of one cluster, as kube-apiserver writes it (k8s.io/apiserver/pkg/endpoints/handlers/response.go).
// Rows are appended as text: to make and encode objects would cost several times as much.
type table struct {
	// isMetadata says that rows have PartialObjectMetadata; otherwise their object is null.
	isMetadata bool
	now        time.Time
	rows       []byte
	cells      [][]byte
}

// begin empties the table.
func (t *table) begin() { t.rows = t.rows[:0] }

// add appends a row.
func (t *table) add(f *fleetindex.Found) error {
	var err error
	if t.cells, err = splitCells(t.cells[:0], f.Cells); err != nil {
		return err
	}
	b := t.rows
	if len(b) > 0 {
		b = append(b, ',')
	}
	b = append(b, `{"cells":[`...)
	for i, cell := range t.cells {
		if i > 0 {
			b = append(b, ',')
		}
		if i < len(f.Definition.Columns) && f.Definition.Columns[i].Age {
			b = append(b, '"')
			b = append(b, age(f.Created, t.now)...)
			b = append(b, '"')
			continue
		}
		b = append(b, cell...)
	}
	b = append(b, `],"object":`...)
	if t.isMetadata {
		b = appendMetadata(b, f)
	} else {
		b = append(b, "null"...)
	}
	t.rows = append(b, '}')
	return nil
}

// document returns the table with the rows that were added. columns are its columnDefinitions.
func (t *table) document(l *fleetindex.Listed, columns []byte) []byte {
	b := append(make([]byte, 0, len(t.rows)+len(columns)+256), `{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":`...)
	b = appendText(b, l.Version)
	if l.Continue != "" {
		b = appendText(append(b, `,"continue":`...), l.Continue)
	}
	if l.Remaining > 0 {
		b = strconv.AppendInt(append(b, `,"remainingItemCount":`...), l.Remaining, 10)
	}
	b = append(append(b, `},"columnDefinitions":`...), columns...)
	b = append(append(b, `,"rows":[`...), t.rows...)
	return append(b, "]}"...)
}

// columnsOf returns the columnDefinitions of a resource.
func columnsOf(d *feed.Definition) ([]byte, error) {
	columns := make([]metav1.TableColumnDefinition, len(d.Columns))
	for i, c := range d.Columns {
		columns[i] = metav1.TableColumnDefinition{Name: c.Name, Type: c.Type, Format: c.Format, Description: c.Description, Priority: c.Priority}
	}
	return json.Marshal(columns)
}

// age is what kube-apiserver prints (k8s.io/kubernetes/pkg/printers/internalversion, translateTimestampSince).
func age(created int64, now time.Time) string {
	if created == 0 {
		return unknownAge
	}
	return duration.HumanDuration(now.Sub(time.Unix(created, 0)))
}

// appendMetadata appends what is known of an object, in the order of metav1.ObjectMeta.
func appendMetadata(b []byte, f *fleetindex.Found) []byte {
	b = appendText(append(b, `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":`...), f.Name)
	if f.Namespace != "" {
		b = appendText(append(b, `,"namespace":`...), f.Namespace)
	}
	b = appendText(append(b, `,"uid":`...), f.UID)
	b = appendText(append(b, `,"resourceVersion":`...), f.Version)
	if f.Created != 0 {
		b = appendTime(append(b, `,"creationTimestamp":`...), f.Created)
	}
	if f.Deleted != 0 {
		b = appendTime(append(b, `,"deletionTimestamp":`...), f.Deleted)
	}
	if len(f.Labels) > 0 {
		b = append(b, `,"labels":{`...)
		for i, key := range slices.Sorted(maps.Keys(f.Labels)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(append(appendText(b, key), ':'), f.Labels[key])
		}
		b = append(b, '}')
	}
	return append(b, "}}"...)
}

func appendTime(b []byte, seconds int64) []byte {
	return time.Unix(seconds, 0).UTC().AppendFormat(b, `"`+time.RFC3339+`"`)
}

// appendText appends a JSON string.
func appendText(b []byte, text string) []byte {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(text) // it writes any text
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, text...)
	return append(b, '"')
}

var errCells = errors.New("the cells of a row are no list of scalars")

// splitCells appends the elements of a JSON array of scalars, as they are written. That it is one was checked
// when the row came.
func splitCells(into [][]byte, array json.RawMessage) ([][]byte, error) {
	rest := trimSpace(array)
	if len(rest) < 2 || rest[0] != '[' {
		return nil, errCells
	}
	if rest = trimSpace(rest[1:]); len(rest) > 0 && rest[0] == ']' {
		return into, nil
	}
	for {
		end := scalarEnd(rest)
		if end <= 0 {
			return nil, errCells
		}
		into = append(into, rest[:end])
		rest = trimSpace(rest[end:])
		switch {
		case len(rest) > 0 && rest[0] == ',':
			rest = trimSpace(rest[1:])
		case len(rest) > 0 && rest[0] == ']':
			return into, nil
		default:
			return nil, errCells
		}
	}
}

// scalarEnd returns the length of the scalar at the beginning of a text, or -1.
func scalarEnd(text []byte) int {
	if len(text) > 0 && text[0] == '"' {
		for i := 1; i < len(text); i++ {
			switch text[i] {
			case '\\':
				i++
			case '"':
				return i + 1
			}
		}
		return -1
	}
	return slices.IndexFunc(text, func(c byte) bool { return c == ',' || c == ']' || isSpace(c) })
}

func trimSpace(text []byte) []byte {
	for len(text) > 0 && isSpace(text[0]) {
		text = text[1:]
	}
	return text
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }
