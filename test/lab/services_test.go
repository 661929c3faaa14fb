package lab

import (
	"fmt"
	"slices"
	"testing"
)

// TestEndpoints has pods come and go behind a headless Service. Each has an address of its own,
// which it keeps, as long as there are enough.
func TestEndpoints(t *testing.T) {
	table := newServiceTable(t.TempDir(), nil)
	before, err := table.addresses(t.Context(), hubName, "ns", "peers", 8090)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		pods []string
		want [endpoints][]string
	}{
		{"two", []string{"a", "b"}, [...][]string{{"a"}, {"b"}, nil, nil}},
		{"one more", []string{"c", "b", "a"}, [...][]string{{"a"}, {"b"}, {"c"}, nil}},
		{"one is replaced", []string{"b", "c", "d"}, [...][]string{{"d"}, {"b"}, {"c"}, nil}},
		{"more than addresses", []string{"b", "c", "d", "e", "f"}, [...][]string{{"d", "f"}, {"b"}, {"c"}, {"e"}}},
		{"none", nil, [endpoints][]string{}},
	} {
		if err := table.setEndpoints(t.Context(), hubName, "ns", "peers", 8090, step.pods); err != nil {
			t.Fatal(err)
		}
		for i, want := range step.want {
			if got := table.services[serviceKey(hubName, "ns", endpoint("peers", i), 8090)].backends; !slices.Equal(got, want) {
				t.Errorf("%s: %q are behind address %d, want %q", step.name, got, i, want)
			}
		}
	}
	if after, err := table.addresses(t.Context(), hubName, "ns", "peers", 8090); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("the addresses were %q and are %q (%v)", before, after, err)
	}
}
