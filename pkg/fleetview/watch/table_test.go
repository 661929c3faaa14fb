package watch

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch/encoding"
)

// rows returns the events that have arrived since it was asked last, in short: the headers
// if an event has them, then its type and cells, then its object.
func (c *client) rows() []string {
	c.t.Helper()
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	var got []string
	for line := range strings.Lines(c.body.String()) {
		var e struct {
			Type   string
			Object json.RawMessage
		}
		var table metav1.Table
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			c.t.Fatalf("event %q: %v", line, err)
		}
		if err := json.Unmarshal(e.Object, &table); err != nil {
			c.t.Fatalf("event %q: %v", line, err)
		}
		if e.Type == encoding.Failed {
			got = append(got, encoding.Failed)
			continue
		}
		if table.APIVersion != "meta.k8s.io/v1" || table.Kind != "Table" || len(table.Rows) != 1 {
			c.t.Fatalf("event %q: it is no Table of one row", line)
		}
		if table.ResourceVersion <= c.last {
			c.t.Errorf("event %q: its version is not greater than %q", line, c.last)
		}
		c.last = table.ResourceVersion
		if len(table.ColumnDefinitions) > 0 {
			var names []string
			for _, column := range table.ColumnDefinitions {
				names = append(names, column.Name)
			}
			got = append(got, strings.Join(names, "|"))
		}
		row := table.Rows[0]
		short := e.Type
		for _, cell := range row.Cells {
			short += "|" + fmt.Sprint(cell)
		}
		got = append(got, short+c.object(row, table.ResourceVersion))
	}
	c.body.Reset()
	return got
}

// object returns what a row's object is.
func (c *client) object(row metav1.TableRow, version string) string {
	if row.Object.Raw == nil {
		return " none"
	}
	var object metav1.PartialObjectMetadata
	if err := json.Unmarshal(row.Object.Raw, &object); err != nil {
		c.t.Fatalf("object %s: %v", row.Object.Raw, err)
	}
	if object.ResourceVersion != version {
		c.t.Errorf("object %s: its version is not that of the Table, %s", row.Object.Raw, version)
	}
	if object.Annotations[metav1.InitialEventsAnnotationKey] != "" {
		return " initial"
	}
	if object.Name == "" {
		return ""
	}
	return fmt.Sprintf(" %s %s/%s", object.Kind, object.Annotations["cluster"], object.Name)
}

func tables(o *Options) { o.Forms = []encoding.Form{{As: encoding.AsTable, Version: "v1"}} }

func TestTables(t *testing.T) {
	for _, mode := range []initialEvents{noInitial, allInitial} {
		t.Run(fmt.Sprint("initial events ", mode), func(t *testing.T) { testTables(t, mode) })
	}
}

func testTables(t *testing.T, mode initialEvents) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x", "y", "z"), newCluster("b", "x")
		a.initial, b.initial = mode, mode
		a.columns = []metav1.TableColumnDefinition{{Name: "Data", Type: "string"}}
		b.columns = append(a.columns, metav1.TableColumnDefinition{Name: "Age", Type: "date"})
		f := newFixture(t, a)
		c := f.watch(func(o *Options) { tables(o); o.SendInitialEvents, o.Bookmarks = new(true), true })
		defer c.stop()
		diff(t, "at first", []string{
			"Cluster|Name|Data",
			"ADDED|a|x|Data of x PartialObjectMetadata a/x",
			"ADDED|a|y|Data of y PartialObjectMetadata a/y",
			"ADDED|a|z|Data of z PartialObjectMetadata a/z",
			"BOOKMARK||| initial",
		}, c.rows())
		a.set("x")
		a.remove("y")
		diff(t, "events", []string{"MODIFIED|a|x|Data of x PartialObjectMetadata a/x", "DELETED|a|y|Data of y PartialObjectMetadata a/y"}, c.rows())
		f.set(a, b)
		time.Sleep(membersEvery)
		diff(t, "a cluster with another column joins", []string{"Cluster|Name|Data|Age", "ADDED|b|x|Data of x|Age of x PartialObjectMetadata b/x"}, c.rows())
		a.set("x")
		diff(t, "the column is empty elsewhere", []string{"MODIFIED|a|x|Data of x|<nil> PartialObjectMetadata a/x"}, c.rows())
		b.cut(false)
		time.Sleep(time.Minute)
		b.set("x")
		b.bookmark()
		diff(t, "after another watch of the member", []string{"MODIFIED|b|x|Data of x|Age of x PartialObjectMetadata b/x"}, c.rows())
		time.Sleep(bookmarkEvery)
		diff(t, "a bookmark", []string{"BOOKMARK||||<nil>"}, c.rows())
		f.set(a)
		time.Sleep(membersEvery)
		diff(t, "a cluster leaves", []string{"DELETED|b|x||<nil> PartialObjectMetadata b/x"}, c.rows())
		for _, request := range append(a.asked(), b.asked()...) {
			if strings.Contains(request, "includeObject") {
				t.Errorf("got the request %q, want none with includeObject", request)
			}
		}
	})
}

func TestTablesIncludeObject(t *testing.T) {
	for include, want := range map[string]string{"": " PartialObjectMetadata a/x", "Metadata": " PartialObjectMetadata a/x", "Object": " ConfigMap a/x", "None": " none"} {
		synctest.Test(t, func(t *testing.T) {
			a := newCluster("a", "x")
			f := newFixture(t, a)
			c := f.watch(func(o *Options) {
				tables(o)
				o.Forms[0].IncludeObject = include
			})
			defer c.stop()
			diff(t, "at first", []string{"Cluster|Name", "ADDED|a|x" + want}, c.rows())
			a.set("x")
			diff(t, "an event", []string{"MODIFIED|a|x" + want}, c.rows())
			f.set()
			time.Sleep(membersEvery)
			diff(t, "the cluster leaves", []string{"DELETED|a|x" + want}, c.rows())
			if got := a.asked(); strings.Contains(fmt.Sprint(got), "includeObject=None") {
				t.Errorf("got requests %q, want objects in the rows", got)
			}
		})
	}
}

// TestTablesOfLeavingMember has a member leave whose columns are known, and another one forget.
func TestTablesOfLeavingMember(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b")
		f := newFixture(t, a, b)
		c := f.watch(tables)
		defer c.stop()
		diff(t, "at first", []string{"Cluster|Name", "ADDED|a|x PartialObjectMetadata a/x"}, c.rows())
		f.set(b)
		time.Sleep(membersEvery)
		diff(t, "a leaves", []string{"DELETED|a|x PartialObjectMetadata a/x"}, c.rows())
		b.set("x")
		diff(t, "an event", []string{"ADDED|b|x PartialObjectMetadata b/x"}, c.rows())
		b.cut(true)
		time.Sleep(time.Minute)
		diff(t, "after a 410 with the same objects", nil, c.rows())
	})
}

// TestTablesFromList goes on from a list, of which the member's columns are not known.
func TestTablesFromList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := newCluster("a", "x"), newCluster("b", "x")
		f := newFixture(t, a, b)
		at := f.listed()
		c := f.watch(func(o *Options) { tables(o); o.ResourceVersion = at.String() })
		defer c.stop()
		diff(t, "since the list", nil, c.rows())
		b.set("x")
		diff(t, "an event", []string{"Cluster|Name", "MODIFIED|b|x PartialObjectMetadata b/x"}, c.rows())
		f.set(b)
		time.Sleep(membersEvery)
		diff(t, "a leaves", []string{encoding.Failed}, c.rows())
	})
}

func TestEvilTables(t *testing.T) {
	row := `{"cells":["y"],"object":{"kind":"PartialObjectMetadata","metadata":{"name":"y","resourceVersion":"200"}}}`
	columns := `"columnDefinitions":[{"name":"Name","type":"string","format":"name"}],`
	for name, raw := range map[string]string{
		"no Table":      `{"kind":"ConfigMap","metadata":{"name":"y"}}`,
		"array":         `[]`,
		"columns":       `{"kind":"Table","columnDefinitions":[7],"rows":[` + row + `]}`,
		"many columns":  `{"kind":"Table","columnDefinitions":[{}` + strings.Repeat(",{}", 1001) + `],"rows":[` + row + `]}`,
		"no object":     `{"kind":"Table",` + columns + `"rows":[{"cells":["y"]}]}`,
		"null object":   `{"kind":"Table",` + columns + `"rows":[{"cells":["y"],"object":null}]}`,
		"cells":         `{"kind":"Table",` + columns + `"rows":[{"cells":{},"object":{"metadata":{"name":"y"}}}]}`,
		"object twice":  `{"kind":"Table",` + columns + `"rows":[{"cells":["y"],"object":{},"object":{}}]}`,
		"names":         `{"kind":"Table",` + columns + `"rows":[{"cells":[],"object":{"metadata":{"name":"` + strings.Repeat("n", maxNames+1) + `"}}}]}`,
		"rows":          `{"kind":"Table",` + columns + `"rows":{}}`,
		"row is number": `{"kind":"Table",` + columns + `"rows":[7]}`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				evil, good := newCluster("evil"), newCluster("good", "x")
				evil.raw = `{"type":"ADDED","object":` + raw + "}\n"
				c := newFixture(t, evil, good).watch(tables)
				defer c.stop()
				diff(t, "at first", []string{"Cluster|Name", "ADDED|good|x PartialObjectMetadata good/x"}, c.rows())
				evil.with(func() { evil.raw = "" })
				evil.set("y")
				time.Sleep(2 * maxBackoff)
				diff(t, "when it is good again", []string{"ADDED|evil|y PartialObjectMetadata evil/y"}, c.rows())
				if c.code != http.StatusOK {
					t.Errorf("got %d, want 200", c.code)
				}
			})
		})
	}
}
