package feed

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var pods = Definition{
	Resource: Resource{Resource: "pods"}, Version: "v1", Kind: "Pod", Namespaced: true,
	Columns: []Column{{Name: "Name", Type: "string"}, {Name: "Status", Type: "string"}, {Name: "Age", Type: "string", Age: true}},
}

func pod() Row {
	return Row{
		Key: Key{Namespace: "shop", Name: "web-0"}, UID: "u", Version: "12", Created: 1,
		Labels: map[string]string{"app": "web"}, Images: []string{"nginx:1.25"}, Node: "node-1",
		Cells: json.RawMessage(`["web-0","Running",null]`),
	}
}

func TestParseResource(t *testing.T) {
	for text, want := range map[string]Resource{
		"pods": {Resource: "pods"}, "deployments.apps": {"apps", "deployments"}, "ingresses.networking.k8s.io": {"networking.k8s.io", "ingresses"},
		"": {}, ".apps": {}, "*": {}, "*.apps": {}, "Pods": {}, "nodes/proxy": {}, "secrets": {}, "secrets.example.com": {},
	} {
		got, err := ParseResource(text)
		if got != want || (err == nil) != (want != Resource{}) {
			t.Errorf("%q: got %+v, %v", text, got, err)
		}
	}
}

func TestCheckRow(t *testing.T) {
	many := map[string]string{}
	for i := range MaxLabels + 1 {
		many[fmt.Sprint(i)] = ""
	}
	for name, c := range map[string]struct {
		change func(*Row)
		want   string
	}{
		"as it is":          {func(*Row) {}, ""},
		"no name":           {func(r *Row) { r.Name = "" }, "needs a name"},
		"no namespace":      {func(r *Row) { r.Namespace = "" }, "does not go with"},
		"control character": {func(r *Row) { r.Name = "a\x1b[2J" }, "control characters"},
		"NUL":               {func(r *Row) { r.Labels["a"] = "\x00" }, "control characters"},
		"not UTF-8":         {func(r *Row) { r.Node = "\xff" }, "not UTF-8"},
		"version":           {func(r *Row) { r.Version = "1e9" }, "is no number"},
		"version with zero": {func(r *Row) { r.Version = "01" }, "is no number"},
		"long version":      {func(r *Row) { r.Version = strings.Repeat("1", 1<<20) }, "more than the bound"},
		"version of length": {func(r *Row) { r.Version = strings.Repeat("1", maxVersion+1) }, "is no number"},
		"long name":         {func(r *Row) { r.Name = strings.Repeat("a", 254) }, "more than 253"},
		"many labels":       {func(r *Row) { r.Labels = many }, "129 labels"},
		"many images":       {func(r *Row) { r.Images = make([]string, MaxImages+1) }, "65 images"},
		"large cells":       {func(r *Row) { r.Cells = []byte(`["` + strings.Repeat("a", 1<<20) + `",1,2]`) }, "more than the bound"},
		"large cell":        {func(r *Row) { r.Cells = []byte(`["` + strings.Repeat("a", MaxText+1) + `",1,2]`) }, "more than 1024"},
		"many bytes": {func(r *Row) {
			for range 20 {
				r.Images = append(r.Images, strings.Repeat("a", MaxText))
			}
		}, "more than the bound"},
		"cells of an object":   {func(r *Row) { r.Cells = []byte(`[{"a":1},1,2]`) }, "no scalar"},
		"nested cells":         {func(r *Row) { r.Cells = []byte(`[[[1]],1,2]`) }, "no scalar"},
		"too few cells":        {func(r *Row) { r.Cells = []byte(`[1]`) }, "1 cells for 3 columns"},
		"cells of bytes":       {func(r *Row) { r.Cells = []byte("[\"\xff\",1,2]") }, "not UTF-8"},
		"no cells":             {func(r *Row) { r.Cells = nil }, "parsing the cells"},
		"cells that are none":  {func(r *Row) { r.Cells = []byte(`"a"`) }, "parsing the cells"},
		"a number in a cell":   {func(r *Row) { r.Cells = []byte(`[1e999,-0.0,18446744073709551616]`) }, ""},
		"control in a cell":    {func(r *Row) { r.Cells = []byte(`["\u0007",1,2]`) }, "control characters"},
		"owner with a newline": {func(r *Row) { r.Owner = "a\nb" }, "control characters"},
	} {
		row := pod()
		c.change(&row)
		err := row.Check(pods)
		if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) && c.want != "" {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestCheckDefinition(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Definition)
		want   string
	}{
		"as it is":          {func(*Definition) {}, ""},
		"no kind":           {func(d *Definition) { d.Kind = "" }, "needs a resource"},
		"many columns":      {func(d *Definition) { d.Columns = make([]Column, MaxCells+1) }, "65 columns"},
		"long descriptions": {func(d *Definition) { d.Columns = []Column{{Description: strings.Repeat("a", MaxDefinition)}} }, "more than the bound"},
		"control character": {func(d *Definition) { d.Columns = []Column{{Name: "a\r"}} }, "control characters"},
	} {
		d := pods
		c.change(&d)
		err := d.Check()
		if got := fmt.Sprint(err); c.want == "" && err != nil || !strings.Contains(got, c.want) && c.want != "" {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

func TestStatusColumn(t *testing.T) {
	for names, want := range map[string]int{"Name Status": 1, "Phase Name": 0, "Phase STATUS": 1, "Name": -1, "": -1} {
		var d Definition
		for _, name := range strings.Fields(names) {
			d.Columns = append(d.Columns, Column{Name: name})
		}
		if got := d.StatusColumn(); got != want {
			t.Errorf("columns %q: got %d, want %d", names, got, want)
		}
	}
}

func TestDigestHasNoOrder(t *testing.T) {
	var items []Item
	for i := range 1000 {
		items = append(items, ItemOf(fmt.Sprintf("uid-%d", i), fmt.Sprint(1000+i)))
	}
	var all Digest
	for _, i := range items {
		all = all.Add(i)
	}
	rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	var again Digest
	for _, i := range items {
		again = again.Add(i)
	}
	if all != again || all == 0 {
		t.Errorf("got %d and %d", all, again)
	}
	seen := map[Digest]bool{all: true}
	for _, i := range items {
		without := all.Remove(i)
		if seen[without] {
			t.Errorf("without %v the digest is that of another set", i)
		}
		seen[without] = true
		if changed := without.Add(Item{UID: i.UID, Version: i.Version + 1}); seen[changed] {
			t.Errorf("with %v changed the digest is that of another set", i)
		}
	}
}

func TestItemsInBinary(t *testing.T) {
	want := []Item{ItemOf("a", "1"), ItemOf("b", "2"), {}}
	var b []byte
	for _, i := range want {
		b = i.Append(b)
	}
	got, err := Items(b)
	if err != nil || !slices.Equal(got, want) {
		t.Error(err, cmp.Diff(want, got))
	}
	if _, err := Items(b[1:]); err == nil {
		t.Error("a part of an item was parsed")
	}
}
