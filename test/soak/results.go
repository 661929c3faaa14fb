package soak

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// report is what a run says at its end.
type report struct {
	began, ended time.Time
	commit       string // that runs, at the beginning
	seed         uint64
	trends       []trend
	clients      []*client
	windows      []window
	faults       map[string]int
	// index says in what the fleet index differs from the clusters at the end, if there is one.
	index error
}

// text is the report, and problems are what the run failed by.
func (r *report) text() (text string, problems []string) {
	var b strings.Builder
	fmt.Fprintf(&b, "`make soak` writes this. See test/soak/doc.go for what it means.\n\n%s, %s of traffic, seed %d, commit %s, %s.\n\n", r.ended.Format(time.DateOnly), r.ended.Sub(r.began).Round(time.Second), r.seed, r.commit, machine())
	b.WriteString("## What grows\n\n" + tableOf(r.trends))
	problems = growing(r.trends)
	b.WriteString("\n## What clients noticed\n\n| client | went well | failed or broke within a fault's window | outside |\n|---|---:|---:|---:|\n")
	var worked, excused int
	for _, c := range r.clients {
		v := c.judge(r.windows)
		worked, excused = worked+v.worked, excused+v.excused
		fmt.Fprintf(&b, "| %s %s | %d | %d | %d |\n", c.name, c.cluster, v.worked, v.excused, len(v.unexcused))
		for _, what := range v.unexcused {
			problems = append(problems, fmt.Sprintf("%s %s: %s", c.name, c.cluster, what))
		}
	}
	fmt.Fprintf(&b, "| all | %d | %d | %d |\n", worked, excused, len(problems)-len(growing(r.trends)))
	if r.index != nil {
		problems = append(problems, "the fleet index at the end: "+r.index.Error())
	}
	b.WriteString("\n## Faults\n\n| fault | times |\n|---|---:|\n")
	sum := 0
	for _, fault := range slices.Sorted(maps.Keys(r.faults)) {
		sum += r.faults[fault]
		fmt.Fprintf(&b, "| %s | %d |\n", fault, r.faults[fault])
	}
	fmt.Fprintf(&b, "| all | %d |\n", sum)
	b.WriteString("\n## Verdict\n\n")
	if len(problems) == 0 {
		b.WriteString("Nothing grows, and nothing failed outside of a fault's window.\n")
	}
	for _, problem := range problems {
		fmt.Fprintf(&b, "- FAILED: %s\n", problem)
	}
	return b.String(), problems
}

func commit() string {
	out, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}

func machine() string {
	load, _ := os.ReadFile("/proc/loadavg")
	return fmt.Sprintf("%d processors, %s/%s, %s, load at the end %s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), strings.Join(strings.Fields(string(load))[:3], " "))
}
