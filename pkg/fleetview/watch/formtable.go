package watch

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// tableForm is objects as rows of Tables, as kubectl shows them.
type tableForm struct {
	wants Form

	// The fields below change while the caller holds the stream.

	table merge.Table
	// newest are the columns that were added last. Members share them: as a rule all have
	// the same.
	newest *columns
	// definitions are the Table's columns, and unsent says that the client does not have
	// them yet.
	definitions []byte
	unsent      bool
}

// columns are those that a member has said.
type columns struct {
	definitions []byte
	layout      *merge.Layout
}

// nameColumn is the column of rows of which the name is all that is known.
const nameColumn = `[{"name":"Name","type":"string","format":"name"}]`

func (f *tableForm) media() media { return f.wants.media() }

func (f *tableForm) source(rewriter *merge.Rewriter) source {
	return &tableSource{form: f, rewriter: rewriter}
}

// appendOwn writes a bookmark as kube-apiserver does: a row without text, whose object has
// the version and the annotations.
func (f *tableForm) appendOwn(dst []byte, kind string, object runtime.Object) ([]byte, error) {
	bookmark, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return jsonForm{}.appendOwn(dst, kind, object)
	}
	none, err := f.table.Add([]byte("[]"))
	if err != nil {
		return nil, err
	}
	version := bookmark.ResourceVersion
	if f.wants.withoutObjects() && len(bookmark.Annotations) == 0 {
		bookmark = nil
	}
	row, err := json.Marshal(ownRow{Cells: []string{}, Object: bookmark})
	if err != nil {
		return nil, fmt.Errorf("writing a row: %w", err)
	}
	return f.append(dst, kind, version, func(dst []byte) ([]byte, error) {
		return none.AppendRow(dst, merge.NewItem(row), &merge.Rewriter{})
	})
}

// ownRow is a row that no member has sent.
type ownRow struct {
	Cells  []string                      `json:"cells"`
	Object *metav1.PartialObjectMetadata `json:"object"`
}

// append appends an event with a Table of one row. The columns are in the first event, and
// in each that follows new ones: kubectl prints headers then.
func (f *tableForm) append(dst []byte, kind, version string, row func([]byte) ([]byte, error)) ([]byte, error) {
	dst = append(appendEvent(dst, kind), `{"kind":"Table","apiVersion":"meta.k8s.io/`...)
	dst = append(append(dst, f.wants.Version...), `","metadata":{"resourceVersion":"`...)
	dst = append(append(dst, version...), `"},"columnDefinitions":`...)
	if f.unsent {
		f.definitions = f.table.Definitions()
		dst = append(dst, f.definitions...)
	} else {
		dst = append(dst, "null"...)
	}
	dst, err := row(append(dst, `,"rows":[`...))
	if err != nil {
		return nil, err
	}
	f.unsent = false
	return append(dst, "]}}\n"...), nil
}

// add returns the columns for definitions of a member, which has before.
func (f *tableForm) add(definitions []byte, before *columns) (*columns, error) {
	for _, known := range []*columns{before, f.newest} {
		if known != nil && bytes.Equal(known.definitions, definitions) {
			return known, nil
		}
	}
	layout, err := f.table.Add(definitions)
	if err != nil {
		return nil, err
	}
	f.grown()
	f.newest = &columns{definitions: bytes.Clone(definitions), layout: layout}
	return f.newest, nil
}

// grown notes that the Table may have more columns.
func (f *tableForm) grown() {
	f.unsent = f.unsent || !bytes.Equal(f.definitions, f.table.Definitions())
}

type tableSource struct {
	form     *tableForm
	rewriter *merge.Rewriter
	columns  *columns
}

func (s *tableSource) events(body io.Reader) func() (event, error) {
	in := &input{from: body}
	var rows []event
	return func() (event, error) {
		for len(rows) == 0 {
			kind, object, err := in.jsonEvent()
			if err != nil {
				return event{}, err
			}
			if rows, err = readTable(kind, object); err != nil {
				return event{}, err
			}
		}
		e := rows[0]
		rows = rows[1:]
		return e, nil
	}
}

// maxRows bounds the rows of the Table of an event.
const maxRows = 1000

// readTable reads the Table of an event. As a rule it has one row.
func readTable(kind string, object []byte) ([]event, error) {
	var table struct {
		Kind     string `json:"kind"`
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		ColumnDefinitions json.RawMessage `json:"columnDefinitions"`
		Rows              json.RawMessage `json:"rows"`
	}
	if err := json.Unmarshal(object, &table); err != nil {
		return nil, fmt.Errorf("reading a Table: %w", err)
	}
	if table.Kind != asTable {
		return nil, fmt.Errorf("reading a Table: it is %q", table.Kind)
	}
	if kind == bookmark {
		return []event{{kind: kind, key: merge.Key{Version: table.Metadata.ResourceVersion}, initial: endsInitial(kind, object)}}, nil
	}
	if len(table.Rows) == 0 {
		return nil, nil
	}
	rows, err := merge.Elements(table.Rows, maxRows)
	if err != nil {
		return nil, fmt.Errorf("reading rows of a Table: %w", err)
	}
	var events []event
	for _, row := range rows {
		key, err := merge.KeyOfRow(merge.NewItem(row))
		if err != nil {
			return nil, err
		}
		e := event{kind: kind, key: key, item: merge.NewItem(row)}
		if len(table.ColumnDefinitions) > 0 && table.ColumnDefinitions[0] == '[' {
			e.columns = table.ColumnDefinitions
		}
		events = append(events, e)
	}
	return events, nil
}

func (s *tableSource) list(body io.Reader, visit func(event) error) (merge.ListMeta, error) {
	table := merge.NewReader(body)
	for {
		row, err := table.Next()
		if err == io.EOF {
			return table.Meta(), nil
		}
		if err == nil && table.Columns() == nil {
			err = errors.New("reading a Table: it has no columnDefinitions")
		}
		if err != nil {
			return table.Meta(), err
		}
		key, err := merge.KeyOfRow(row)
		if err != nil {
			return table.Meta(), err
		}
		if err := visit(event{key: key, item: row, columns: table.Columns()}); err != nil {
			return table.Meta(), err
		}
	}
}

func (s *tableSource) append(dst []byte, e event) ([]byte, error) {
	row, layout, err := s.place(e)
	if err != nil {
		return nil, err
	}
	return s.form.append(dst, e.kind, s.rewriter.Version(e.key.Version), func(dst []byte) ([]byte, error) {
		return layout.AppendRow(dst, row, s.rewriter)
	})
}

// place returns the row of an event, and where its cells belong.
func (s *tableSource) place(e event) (row merge.Item, layout *merge.Layout, err error) {
	if e.item.IsZero() {
		layout, err = s.form.table.Add([]byte(nameColumn))
		if err != nil {
			return row, nil, err
		}
		s.form.grown()
		var own []byte
		own, err = json.Marshal(ownRow{Cells: []string{e.key.Name}, Object: partial(e.key)})
		row = merge.NewItem(own)
	} else {
		if e.columns != nil {
			if s.columns, err = s.form.add(e.columns, s.columns); err != nil {
				return row, nil, err
			}
		}
		if s.columns == nil {
			return row, nil, errors.New("reading a Table: its first event has no columnDefinitions")
		}
		row, layout = e.item, s.columns.layout
	}
	if err == nil && s.form.wants.withoutObjects() {
		var kept []byte
		kept, err = withoutObject(row.JSON())
		row = merge.NewItem(kept)
	}
	return row, layout, err
}

// withoutObject returns a row without its object.
func withoutObject(row []byte) ([]byte, error) {
	var kept struct {
		Cells      json.RawMessage `json:"cells"`
		Conditions json.RawMessage `json:"conditions,omitempty"`
		Object     json.RawMessage `json:"object"`
	}
	if err := json.Unmarshal(row, &kept); err != nil {
		return nil, fmt.Errorf("reading a row: %w", err)
	}
	kept.Object = nil
	text, err := json.Marshal(kept)
	if err != nil {
		return nil, fmt.Errorf("writing a row: %w", err)
	}
	return text, nil
}
