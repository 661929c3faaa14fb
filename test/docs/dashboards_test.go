package docs

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// dashboards are those of the chart, with what each panel shows and of which metrics it is made.
func dashboards(t *testing.T) string {
	files, err := filepath.Glob("../../charts/cluster-proxy/files/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	metric := regexp.MustCompile(`\b(?:ALERTS|up|(?:cluster_proxy|process|go|kube)[_:][a-z0-9_:]+)\b`)
	var out strings.Builder
	for _, file := range files {
		var dashboard struct {
			Title, Description string
			Panels             []struct {
				Type, Title, Description string
				Targets                  []struct{ Expr string }
			}
		}
		if err := json.Unmarshal([]byte(read(t, file)), &dashboard); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		fmt.Fprintf(&out, "## %s\n\n%s\n\n", dashboard.Title, fill(dashboard.Description, ""))
		for _, panel := range dashboard.Panels {
			if panel.Type == "row" {
				fmt.Fprintf(&out, "\n**%s**\n\n", panel.Title)
				continue
			}
			var names []string
			for _, target := range panel.Targets {
				for _, name := range metric.FindAllString(target.Expr, -1) {
					names = append(names, "`"+name+"`")
				}
			}
			slices.Sort(names)
			text := panel.Description + " Made of " + strings.Join(slices.Compact(names), ", ") + "."
			out.WriteString(item(panel.Title, panel.Type, text))
		}
		out.WriteString("\n")
	}
	return out.String()
}
