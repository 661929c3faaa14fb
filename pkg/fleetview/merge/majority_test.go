package merge

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMajority(t *testing.T) {
	rank := func(of metav1.TypeMeta) int { return len(of.Kind) }
	for _, test := range []struct {
		kinds []string
		want  string
	}{
		{nil, ""},
		{[]string{"", ""}, ""},
		{[]string{"", "", "A"}, "A"},
		{[]string{"A", "BB"}, "BB"},
		{[]string{"A", "BB", "A"}, "A"},
		{[]string{"A", "BB", "A", "BB", "CCC", "DDD"}, "BB"},
	} {
		for _, reverse := range []bool{false, true} {
			var kinds []metav1.TypeMeta
			for _, kind := range test.kinds {
				kinds = append(kinds, metav1.TypeMeta{Kind: kind})
			}
			if reverse {
				slices.Reverse(kinds)
			}
			if got := Majority(kinds, rank); got.Kind != test.want {
				t.Errorf("Majority(%q), reversed %v, is %q, want %q", test.kinds, reverse, got.Kind, test.want)
			}
		}
	}
}
