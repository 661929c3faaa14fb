package merge

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	podColumns     = `[{"name":"Name","type":"string","format":"name","description":"d","priority":0},{"name":"Ready","type":"string"},{"name":"IP","type":"string","priority":1}]`
	newerColumns   = `[{"name":"Name","type":"string","format":"name"},{"name":"Restarts","type":"integer"},{"name":"Ready","type":"string"}]`
	machineColumns = `[{"name":"Cluster","type":"string"},{"name":"Cluster","type":"string"}]`
)

func add(t *testing.T, table *Table, columns string) *Layout {
	t.Helper()
	layout, err := table.Add([]byte(columns))
	if err != nil {
		t.Fatalf("adding %s: %v", columns, err)
	}
	return layout
}

func TestTable(t *testing.T) {
	var table Table
	first := add(t, &table, podColumns)
	second := add(t, &table, newerColumns)
	third := add(t, &table, machineColumns)
	var columns []struct {
		Name     string
		Priority int
	}
	if err := json.Unmarshal(table.Definitions(), &columns); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, column := range columns {
		got = append(got, column.Name+strings.Repeat("+", column.Priority))
	}
	if diff := cmp.Diff([]string{"Cluster", "Name", "Ready", "IP+", "Restarts", "Cluster", "Cluster"}, got); diff != "" {
		t.Errorf("columns (-want +got):\n%s", diff)
	}
	const ours = `"annotations":{"` + testAnnotation + `":"edge-7","` + karmadaAnnotation + `":"edge-7"}`
	tests := map[string]struct {
		layout    *Layout
		row, want string
		qualified bool
	}{
		"first": {
			layout: first, row: `{"cells":["a","1/1","10.0.0.1"],"conditions":[{"type":"Completed"}],"object":{"metadata":{"name":"a"}}}`,
			want: `{"cells":["edge-7","a","1/1","10.0.0.1",null,"",""],"conditions":[{"type":"Completed"}],"object":{"metadata":{"name":"a",` + ours + `}}}`,
		},
		"second, qualified": {
			layout: second, row: `{ "cells" : [ "a" , 3 , "1/1" ] , "object" : {"metadata":{"name":"a"}} }`, qualified: true,
			want: `{"cells" : ["edge-7","a@edge-7","1/1","",3,"",""],"object" : {"metadata":{"name":"a@edge-7",` + ours + `}}}`,
		},
		"equal columns": {layout: third, row: `{"cells":["x",{"y":[1]}]}`, want: `{"cells":["edge-7","","","",null,"x",{"y":[1]}]}`},
		"null object":   {layout: first, row: `{"cells":["a","",""],"object":null}`, want: `{"cells":["edge-7","a","","",null,"",""],"object":null}`},
		"few cells":     {layout: first, row: `{"cells":["a"]}`, want: `{"cells":["edge-7","a","","",null,"",""]}`},
		"many cells":    {layout: third, row: `{"cells":["a","b","c"]}`, want: `{"cells":["edge-7","","","",null,"a","b"]}`},
		"null cells":    {layout: third, row: `{"cells":null}`, want: `{"cells":["edge-7","","","",null,"",""]}`},
		"other case":    {layout: third, row: `{"Cells":1,"cells":[],"OBJECT":{}}`, want: `{"cells":["edge-7","","","",null,"",""]}`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := test.layout.AppendRow([]byte("before"), NewItem([]byte(test.row)), testRewriter(test.qualified))
			if err != nil {
				t.Fatalf("row %s: %v", test.row, err)
			}
			if diff := cmp.Diff("before"+test.want, string(got)); diff != "" {
				t.Errorf("row %s (-want +got):\n%s", test.row, diff)
			}
		})
	}
}

func TestTableRefuses(t *testing.T) {
	many := make([]map[string]string, maxColumns+1)
	for i := range many {
		many[i] = map[string]string{"name": strings.Repeat("x", i%10), "type": "string"}
	}
	tooMany, err := json.Marshal(many)
	if err != nil {
		t.Fatal(err)
	}
	for _, columns := range []string{``, `{}`, `[1]`, `[{"name":1}]`, string(tooMany)} {
		var table Table
		if _, err := table.Add([]byte(columns)); err == nil {
			t.Errorf("adding columns %.80s: got no error, want one", columns)
		}
	}
	var table Table
	layout := add(t, &table, podColumns)
	for _, row := range []string{``, `[]`, `{}`, `{"cells":{}}`, `{"cells":[],"cells":[]}`, `{"cells":[],"object":1}`, `{"cells":[],"object":{},"object":{}}`, `{"cells":[}`, `{"cells":[]}x`} {
		got, err := layout.AppendRow([]byte("before"), NewItem([]byte(row)), testRewriter(true))
		if err == nil || string(got) != "before" {
			t.Errorf("row %s: got %s and error %v, want an error and nothing appended", row, got, err)
		}
	}
}

func TestKeyOfRow(t *testing.T) {
	want := Key{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web", UID: "u", Version: "7"}
	row := `{"cells":["object"],"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7"}}}`
	if got, err := KeyOfRow(NewItem([]byte(row))); err != nil || got != want {
		t.Errorf("row %s: got %v and error %v, want %v", row, got, err, want)
	}
	for _, row := range []string{``, `7`, `{"cells":[]}`, `{"object":null}`, `{"object":[]}`, `{"object":{},"object":{}}`, `{"object":{}`, `{"object":{}}x`} {
		if got, err := KeyOfRow(NewItem([]byte(row))); err == nil || got != (Key{}) {
			t.Errorf("row %s: got %v and error %v, want an error", row, got, err)
		}
	}
}

func FuzzTableRow(f *testing.F) {
	f.Add([]byte(newerColumns), []byte(`{"cells":["a",1,"b"],"object":{"metadata":{"name":"a"}}}`))
	f.Fuzz(func(t *testing.T, columns, row []byte) {
		var table Table
		if _, err := table.Add([]byte(podColumns)); err != nil {
			t.Fatal(err)
		}
		layout, err := table.Add(columns)
		if err != nil {
			return
		}
		got, err := layout.AppendRow(nil, NewItem(row), testRewriter(true))
		if err != nil {
			return
		}
		var decoded struct{ Cells []any }
		if err := json.Unmarshal(got, &decoded); err != nil {
			t.Fatalf("row %q gave %q: %v", row, got, err)
		}
		if want := len(table.snapshot()); len(decoded.Cells) != want || decoded.Cells[0] != "edge-7" {
			t.Fatalf("row %q gave %q: got %d cells, want %d, the cluster first", row, got, len(decoded.Cells), want)
		}
		before, err := KeyOfRow(NewItem(row))
		if err != nil {
			return
		}
		if after, err := KeyOfRow(NewItem(got)); err != nil || after.UID != before.UID || after.Namespace != before.Namespace {
			t.Fatalf("row %q gave %q: got key %v, %v, want one like %v", row, got, after, err, before)
		}
	})
}
