package fault

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
)

const (
	// MaxNamed is how many clusters Warnings and causes name; a count follows.
	MaxNamed = 10
	// MaxWarning is how many bytes of a message are in a Warning.
	MaxWarning = 500
)

// Warn adds a header for each cluster without a part in the answer, and a count for those
// after the tenth. kubectl prints them. The effect is what that means: its objects are not
// shown.
func Warn(header http.Header, faults []*Fault, effect string) {
	sorted := slices.SortedFunc(slices.Values(faults), func(a, b *Fault) int { return cmp.Compare(a.Cluster, b.Cluster) })
	for i, f := range sorted {
		if i == MaxNamed {
			AddWarning(header, moreOf(sorted[i:], effect))
			return
		}
		effect := effect
		if !f.Since.IsZero() {
			effect = "its answer of " + f.Since.UTC().Format("15:04:05 MST") + " is used"
		}
		AddWarning(header, fmt.Sprintf("cluster %s %s; %s", f.Cluster, cut(f.Outcome(), MaxWarning), effect))
	}
}

// WarnOfEach adds a header for what is said of each cluster, and a count for those after the tenth, of which rest is
// said.
func WarnOfEach(header http.Header, said map[string]string, rest string) {
	for i, cluster := range slices.Sorted(maps.Keys(said)) {
		if i == MaxNamed {
			clusters := "clusters"
			if len(said) == i+1 {
				clusters = "cluster"
			}
			AddWarning(header, fmt.Sprintf("%d more %s: %s", len(said)-i, clusters, rest))
			return
		}
		AddWarning(header, fmt.Sprintf("cluster %s %s", cluster, cut(said[cluster], MaxWarning)))
	}
}

// Outcomes says what each cluster did, in one line.
func Outcomes(faults []*Fault) string {
	var parts []string
	for i, f := range faults {
		if i == MaxNamed {
			parts = append(parts, fmt.Sprintf("and %d more", len(faults)-i))
			break
		}
		parts = append(parts, OneLine("cluster "+f.Cluster+" "+f.Outcome(), MaxWarning))
	}
	return strings.Join(parts, "; ")
}

// moreOf is the Warning of the clusters that are not named.
func moreOf(faults []*Fault, effect string) string {
	did := "did not answer"
	if slices.ContainsFunc(faults, func(f *Fault) bool { return f.Code != 0 }) {
		did += ", or refused"
	}
	if len(faults) == 1 {
		return "1 more cluster " + did + "; " + effect
	}
	return fmt.Sprintf("%d more clusters %s; %s", len(faults), did, strings.Replace(effect, "its", "their", 1))
}

// WarnOfRefusal adds the message of a refusal, cut, for clients that throw the Status away:
// discovery of client-go does.
func WarnOfRefusal(header http.Header, message string) { AddWarning(header, cut(message, MaxWarning)) }

// AddWarning adds a header of which members may have written a part.
func AddWarning(header http.Header, text string) {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "?"))
	if warning, err := utilnet.NewWarningHeader(299, "-", text); err == nil { // it has no control characters
		header.Add("Warning", warning)
	}
}
