package encoding

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

// tableCodec is objects as rows of Tables, as kubectl shows them.
type tableCodec struct {
	media Media
	// version is the one of Tables' API group, and withoutObjects says that the client does not
	// want the rows' objects.
	version        string
	withoutObjects bool

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

func (c *tableCodec) Media() Media { return c.media }

func (c *tableCodec) Source(rewriter *merge.Rewriter) Source {
	return &tableSource{codec: c, rewriter: rewriter}
}

// AppendOwn writes a bookmark as kube-apiserver does: a row without text, whose object has
// the version and the annotations.
func (c *tableCodec) AppendOwn(dst []byte, kind string, object runtime.Object) ([]byte, error) {
	bookmark, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return jsonCodec{}.AppendOwn(dst, kind, object)
	}
	none, err := c.table.Add([]byte("[]"))
	if err != nil {
		return nil, err
	}
	version := bookmark.ResourceVersion
	if c.withoutObjects && len(bookmark.Annotations) == 0 {
		bookmark = nil
	}
	row, err := json.Marshal(ownRow{Cells: []string{}, Object: bookmark})
	if err != nil {
		return nil, fmt.Errorf("writing a row: %w", err)
	}
	return c.append(dst, kind, version, func(dst []byte) ([]byte, error) {
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
func (c *tableCodec) append(dst []byte, kind, version string, row func([]byte) ([]byte, error)) ([]byte, error) {
	dst = append(appendEvent(dst, kind), `{"kind":"Table","apiVersion":"meta.k8s.io/`...)
	dst = append(append(dst, c.version...), `","metadata":{"resourceVersion":"`...)
	dst = append(append(dst, version...), `"},"columnDefinitions":`...)
	if c.unsent {
		c.definitions = c.table.Definitions()
		dst = append(dst, c.definitions...)
	} else {
		dst = append(dst, "null"...)
	}
	dst, err := row(append(dst, `,"rows":[`...))
	if err != nil {
		return nil, err
	}
	c.unsent = false
	return append(dst, "]}}\n"...), nil
}

// add returns the columns for definitions of a member, which has before.
func (c *tableCodec) add(definitions []byte, before *columns) (*columns, error) {
	for _, known := range []*columns{before, c.newest} {
		if known != nil && bytes.Equal(known.definitions, definitions) {
			return known, nil
		}
	}
	layout, err := c.table.Add(definitions)
	if err != nil {
		return nil, err
	}
	c.grown()
	c.newest = &columns{definitions: bytes.Clone(definitions), layout: layout}
	return c.newest, nil
}

// grown notes that the Table may have more columns.
func (c *tableCodec) grown() {
	c.unsent = c.unsent || !bytes.Equal(c.definitions, c.table.Definitions())
}

type tableSource struct {
	codec    *tableCodec
	rewriter *merge.Rewriter
	columns  *columns
}

func (s *tableSource) Events(body io.Reader) func() (Event, error) {
	in := &input{from: body}
	var rows []Event
	return func() (Event, error) {
		for len(rows) == 0 {
			kind, object, err := in.jsonEvent()
			if err != nil {
				return Event{}, err
			}
			if rows, err = readTable(kind, object); err != nil {
				return Event{}, err
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
func readTable(kind string, object []byte) ([]Event, error) {
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
	if table.Kind != AsTable {
		return nil, fmt.Errorf("reading a Table: it is %q", table.Kind)
	}
	if kind == Bookmark {
		return []Event{{Kind: kind, Key: merge.Key{Version: table.Metadata.ResourceVersion}, Initial: endsInitial(kind, object)}}, nil
	}
	if len(table.Rows) == 0 {
		return nil, nil
	}
	rows, err := merge.Elements(table.Rows, maxRows)
	if err != nil {
		return nil, fmt.Errorf("reading rows of a Table: %w", err)
	}
	var events []Event
	for _, row := range rows {
		key, err := merge.KeyOfRow(merge.NewItem(row))
		if err != nil {
			return nil, err
		}
		e := Event{Kind: kind, Key: key, item: merge.NewItem(row)}
		if len(table.ColumnDefinitions) > 0 && table.ColumnDefinitions[0] == '[' {
			e.columns = table.ColumnDefinitions
		}
		events = append(events, e)
	}
	return events, nil
}

func (s *tableSource) List(body io.Reader, visit func(Event) error) (merge.ListMeta, error) {
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
		if err := visit(Event{Key: key, item: row, columns: table.Columns()}); err != nil {
			return table.Meta(), err
		}
	}
}

func (s *tableSource) Append(dst []byte, e Event) ([]byte, error) {
	row, layout, err := s.place(e)
	if err != nil {
		return nil, err
	}
	return s.codec.append(dst, e.Kind, s.rewriter.Version(e.Key.Version), func(dst []byte) ([]byte, error) {
		return layout.AppendRow(dst, row, s.rewriter)
	})
}

// place returns the row of an event, and where its cells belong.
func (s *tableSource) place(e Event) (row merge.Item, layout *merge.Layout, err error) {
	if e.item.IsZero() {
		layout, err = s.codec.table.Add([]byte(nameColumn))
		if err != nil {
			return row, nil, err
		}
		s.codec.grown()
		var own []byte
		own, err = json.Marshal(ownRow{Cells: []string{e.Key.Name}, Object: partial(e.Key)})
		row = merge.NewItem(own)
	} else {
		if e.columns != nil {
			if s.columns, err = s.codec.add(e.columns, s.columns); err != nil {
				return row, nil, err
			}
		}
		if s.columns == nil {
			return row, nil, errors.New("reading a Table: its first event has no columnDefinitions")
		}
		row, layout = e.item, s.columns.layout
	}
	if err == nil && s.codec.withoutObjects {
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
