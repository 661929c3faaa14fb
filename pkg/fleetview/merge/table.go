package merge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// columnCluster is the name of the column with the cluster, which kubectl shows as CLUSTER.
const columnCluster = "Cluster"

// maxColumns bounds the columns of a Table, in all and from one member.
const maxColumns = 1000

// Table merges the columns of the members' Tables. The zero value is ready. It is safe for
// concurrent use.
type Table struct {
	mu sync.Mutex
	// columns only grow, and none of them changes.
	columns []metav1.TableColumnDefinition
	// index has the places of the columns of a name and type, in their order.
	index map[columnKey][]int
}

// columnKey is what columns of several members are matched by.
type columnKey struct{ name, kind string }

// Layout says where the cells of one member's rows belong in a Table. It is safe for
// concurrent use.
type Layout struct {
	table *Table
	// cells has, for each column of the Table behind the cluster's, the index of the
	// member's cell, or -1.
	cells []int
	// name is the index of the member's cell with the object's name, or -1.
	name int
}

// Add merges a member's columnDefinitions into the Table and returns the layout of the
// member's rows. A column of a name and type that the Table has already is that column.
// Other columns come behind the others.
func (t *Table) Add(columnDefinitions []byte) (*Layout, error) {
	definitions, err := Elements(columnDefinitions, maxColumns)
	if err != nil {
		return nil, fmt.Errorf("reading columnDefinitions: %w", err)
	}
	columns := make([]metav1.TableColumnDefinition, len(definitions))
	for i, definition := range definitions {
		if err := json.Unmarshal(definition, &columns[i]); err != nil {
			return nil, fmt.Errorf("reading columnDefinitions: %w", err)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.init()
	layout := &Layout{table: t, name: -1}
	taken := map[columnKey]int{} // how many of the member's columns have the key
	places := make([]int, len(columns))
	for i, column := range columns {
		key := columnKey{column.Name, column.Type}
		if same := t.index[key]; taken[key] < len(same) {
			places[i] = same[taken[key]]
		} else {
			if len(t.columns) > maxColumns {
				return nil, fmt.Errorf("merging columns: the members have more than %d", maxColumns)
			}
			places[i] = len(t.columns)
			t.index[key] = append(same, places[i])
			t.columns = append(t.columns, column)
		}
		taken[key]++
		if column.Format == "name" && layout.name < 0 {
			layout.name = i
		}
	}
	layout.cells = make([]int, len(t.columns)-1)
	for i := range layout.cells {
		layout.cells[i] = -1
	}
	for i, place := range places {
		layout.cells[place-1] = i
	}
	return layout, nil
}

// init adds the cluster's column. It is in no index: a member's column of that name, as
// Cluster API has it, is another one.
func (t *Table) init() {
	if t.columns != nil {
		return
	}
	t.index = map[columnKey][]int{}
	t.columns = []metav1.TableColumnDefinition{{
		Name: columnCluster, Type: "string", Description: "The cluster that the object is from.",
	}}
}

// Definitions returns the Table's columnDefinitions in JSON. They grow with Add, at their end.
func (t *Table) Definitions() []byte {
	columns := t.snapshot()
	definitions, err := json.Marshal(columns)
	if err != nil {
		panic("merge: encoding columns: " + err.Error()) // strings and numbers have a JSON form
	}
	return definitions
}

func (t *Table) snapshot() []metav1.TableColumnDefinition {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.init()
	return t.columns
}

// AppendRow appends a member's row as it is in the Table: the cell of the cluster, then a
// cell for each column that the Table has now. The row's object is rewritten by w. If w
// qualifies names, the cell of the column with the format "name" is qualified too.
func (l *Layout) AppendRow(dst []byte, row Item, w *Rewriter) ([]byte, error) {
	start := len(dst)
	var cells, object bool
	m := row.members()
	dst = append(dst, '{')
	for m.More() {
		switch {
		case string(m.Key) == "cells":
			if m.once(&cells) {
				dst = appendMember(dst, m.data[m.start:m.Value])
				dst = l.appendCells(dst, m.skip(), &m, w)
			}
		case string(m.Key) == "object":
			if m.once(&object) {
				dst = appendMember(dst, m.data[m.start:m.Value])
				dst = appendRowObject(dst, &m, w)
			}
		default:
			m.skip()
			if m.Err == nil && !isTwin(m.Key, []string{"cells", "object"}) {
				dst = appendMember(dst, m.data[m.start:m.Next])
			}
		}
	}
	err := m.end()
	if err == nil && !cells {
		err = errors.New("it has no cells")
	}
	if err != nil {
		return dst[:start], fmt.Errorf("reading a row: %w", err)
	}
	return append(dst, '}'), nil
}

// appendRowObject appends the object of a row, which is the value of m's member.
func appendRowObject(dst []byte, m *members, w *Rewriter) []byte {
	if m.Err == nil && m.data[m.Value] == 'n' {
		return append(dst, m.skip()...)
	}
	e := w.edit()
	in := m.inner()
	dst, err := e.appendWalked(dst, &in, m.Value)
	if err != nil {
		m.fail(err)
	}
	m.Next = in.Next
	return dst
}

// appendCells appends the cells of a row, which are JSON whose syntax is right.
func (l *Layout) appendCells(dst, cells []byte, m *members, w *Rewriter) []byte {
	if m.Err != nil {
		return dst
	}
	var few [32][]byte
	values, err := elements(few[:0], cells, math.MaxInt)
	if err != nil {
		m.fail(err)
		return dst
	}
	dst = appendQuoted(append(dst, '['), w.Cluster)
	for i, column := range l.table.snapshot()[1:] {
		dst = append(dst, ',')
		cell := -1
		if i < len(l.cells) {
			cell = l.cells[i]
		}
		switch {
		case cell >= 0 && cell < len(values) && cell == l.name && values[cell][0] == '"' && w.qualifiesCell(values[cell]):
			dst = appendSuffixed(dst, values[cell], "@"+w.Cluster)
		case cell >= 0 && cell < len(values):
			dst = append(dst, values[cell]...)
		case column.Type == "string":
			dst = append(dst, `""`...)
		default:
			dst = append(dst, "null"...)
		}
	}
	return append(dst, ']')
}

// qualifiesCell reports whether the name in a cell is qualified.
func (w *Rewriter) qualifiesCell(cell []byte) bool {
	if w.Qualified || w.Misleading == nil || bytes.IndexByte(cell, '@') < 0 {
		return w.Qualified
	}
	name, err := Unquote(cell)
	return err == nil && w.Misleading(name)
}
