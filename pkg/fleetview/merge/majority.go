package merge

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Majority returns what most of kinds are; empty ones do not count. Of those that are there
// equally often it is the one with the highest rank.
func Majority(kinds []metav1.TypeMeta, rank func(of metav1.TypeMeta) int) (most metav1.TypeMeta) {
	count := map[metav1.TypeMeta]int{}
	for _, of := range kinds {
		if of.Kind == "" {
			continue
		}
		count[of]++
		if n := count[of]; n > count[most] || n == count[most] && rank(of) > rank(most) {
			most = of
		}
	}
	return most
}
