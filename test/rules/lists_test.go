package rules

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLists holds lists that documents have of names in the code to the code: neither has one that the other lacks.
func TestLists(t *testing.T) {
	firstColumn, name := regexp.MustCompile("(?m)^\\| (`[^|]+) \\|"), regexp.MustCompile("`(\\w+)`")
	for _, list := range []struct {
		page, source   string
		listed, inCode *regexp.Regexp
		least          int
	}{
		{"docs/reference/cluster-settings.md", "pkg/addonmanager/agentaddon/variables.go", nil, regexp.MustCompile(`(?m)^\t"(\w+)":`), 15},
		{"docs/how-to/cap-the-hub.md", "pkg/proxyagent/ownerpolicy/policy.go", regexp.MustCompile(`(?m)^        (\w+): .* # `), regexp.MustCompile(`json:"(\w+),`), 6},
	} {
		content := read(t, list.page)
		if list.listed == nil { // the first column of a table
			var columns strings.Builder
			for _, row := range firstColumn.FindAllStringSubmatch(content, -1) {
				columns.WriteString(row[1])
			}
			content, list.listed = columns.String(), name
		}
		listed, inCode := namesIn(content, list.listed), namesIn(read(t, list.source), list.inCode)
		if !slices.Equal(listed, inCode) || len(inCode) < list.least {
			t.Errorf("%s lists %q, %s has %q", list.page, listed, list.source, inCode)
		}
	}
}

func namesIn(content string, pattern *regexp.Regexp) (names []string) {
	for _, found := range pattern.FindAllStringSubmatch(content, -1) {
		names = append(names, found[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// TestSupportedVersions wants the page to have the versions that the lab runs.
func TestSupportedVersions(t *testing.T) {
	page := read(t, "docs/reference/supported-versions.md")
	for _, of := range []struct{ file, pattern string }{
		{"test/lab/binaries/kube/go.mod", `k8s.io/kubernetes v(\S+)`},
		{"test/lab/binaries/kube-older/go.mod", `k8s.io/kubernetes v(\S+)`},
		{"test/lab/binaries/helm/go.mod", `helm.sh/helm/v3 v(\S+)`},
		{"test/lab/binaries/ocm/go.mod", `open-cluster-management.io/ocm v(\S+)`},
		{"test/lab/release.go", `OCMOldest +Release = "([^"]+)"`},
	} {
		version := regexp.MustCompile(of.pattern).FindStringSubmatch(read(t, of.file))
		if version == nil || !strings.Contains(page, " "+version[1]) {
			t.Errorf("docs/reference/supported-versions.md does not have %q of %s", version, of.file)
		}
	}
}
