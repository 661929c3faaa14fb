package e2e

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// TestFleetKubectlNamesTheCluster runs every command of kubectl that takes the name of an object
// with NAME@CLUSTER, for every kind that it resolves, where all clusters have objects of the same
// names. Each command must be about that cluster, or be refused in words that say how; never about
// another cluster, and never about nothing. The commands are those of kubectl's own help: one that
// a later kubectl adds fails the test until somebody says what it does. It disturbs nothing: what it
// makes lies in a namespace of its own, and on a node that takes no other pods.
func TestFleetKubectlNamesTheCluster(t *testing.T) {
	releaseOnNodes(t)
	if onNodes || os.Getenv("E2E_KUBECTL") == "" {
		t.Skip("a thousand commands, in a lab without nodes: make e2e-kubectl")
	}
	reads, writes := namingReads(), namingWrites()
	s := newSame(t)
	wantAllCommands(t, s.direct(t, s.clusters[0]), append(reads, writes...))
	const qualified = "e2e-same-qualified"
	installed.MakeView(t, qualified, map[string]any{"names": "Qualified"})
	plain := newKubectl(t, installed.ViewEndpoints(allView, installed.HubToken)[0].Cfg).as("fleet-names-plain")
	ways := []*naming{
		{same: s, view: "Plain", kubectl: plain},
		{same: s, view: "Qualified", kubectl: newKubectl(t, installed.ViewEndpoints(qualified, installed.HubToken)[1].Cfg).as("fleet-names-qualified")},
		{same: s, view: "Plain-by-namespace", kubectl: plain, inNamespace: true},
	}
	// Discovery is read before several kubectls at once would do it.
	for _, way := range ways {
		way.kubectl.run(t, "api-resources")
	}
	for _, cluster := range s.clusters {
		s.direct(t, cluster).run(t, "api-resources")
	}
	table := &namingTable{cells: map[string]map[string][]string{}}
	t.Run("reads", func(t *testing.T) { tryNames(t, ways, reads, table) })
	t.Run("writes", func(t *testing.T) { tryNames(t, ways, writes, table) })
	t.Log(table)
}

// tryNames tries uses of names: kinds beside each other, and those of one kind one after the other.
func tryNames(t *testing.T, ways []*naming, uses []namingUse, table *namingTable) {
	byKind := map[string][]namingUse{}
	for _, use := range uses {
		for kind := range strings.FieldsSeq(use.kinds) {
			byKind[kind] = append(byKind[kind], use)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			for _, use := range byKind[kind] {
				for _, way := range ways {
					// A guess takes the first cluster, so the last is enough to see it.
					clusters := way.clusters
					if way.view != "Plain" || use.once {
						clusters = clusters[len(clusters)-1:]
					}
					if way.inNamespace && sameKinds[kind].cluster {
						continue
					}
					for _, cluster := range clusters {
						u := way.using(t, cluster, kind)
						use.run(u)
						table.add(use.title(), kind, way.view+" "+u.verdict())
						known := slices.Contains(strings.Fields(use.lacks), kind) && !way.inNamespace
						if want := slices.Contains(strings.Fields(use.refused), kind); !known && (u.wrong != "" || want != (u.refusal != "")) {
							t.Errorf("%s: kubectl %s %s@%s: %s; want it refused: %t", way.view, use.title(), kind, cluster, u.verdict(), want)
						}
					}
				}
			}
		})
	}
}

// namingUse is one way to use a command of kubectl with the name of an object.
type namingUse struct {
	// command is its path in kubectl's tree; variant tells it from others of the command.
	command, variant string
	// kinds are those that it is tried with, and refused those of them for which it is refused.
	kinds, refused string
	// lacks are kinds of which it shows too little, as docs/explanation/names-in-views.md says.
	lacks string
	// once says that one cluster is enough: what it writes is what it is told.
	once bool
	run  func(u *using)
}

func (u namingUse) title() string { return strings.TrimSpace(u.command + " " + u.variant) }

// naming is a view in which objects are named.
type naming struct {
	*same
	view    string
	kubectl kubectl
	// inNamespace says that the namespace names the cluster, and objects are called as they are.
	inNamespace bool
}

// using is one use of a command.
type using struct {
	*naming
	t             *testing.T
	cluster, kind string
	// id is in no other use. It may be a name, or the value of a label.
	id string
	// wrong says what is not right, and refusal with which words the command was refused.
	wrong, refusal string
}

var usings atomic.Int64

func (n *naming) using(t *testing.T, cluster, kind string) *using {
	return &using{naming: n, t: t, cluster: cluster, kind: kind, id: fmt.Sprintf("u%d", usings.Add(1))}
}

func (u *using) verdict() string {
	switch {
	case u.wrong != "":
		return "WRONG: " + u.wrong
	case u.refusal != "":
		return "refused: " + u.refusal
	}
	return "right"
}

func (u *using) fail(format string, args ...any) { u.wrong = fmt.Sprintf(format, args...) }

// object is NAME@CLUSTER, and ref the same behind the kind.
func (u *using) object() string { return u.called(u.name(u.kind)) }
func (u *using) ref() string    { return u.kind + "/" + u.object() }

// called is how an object is called in the view.
func (u *using) called(name string) string {
	if u.inNamespace {
		return name
	}
	return name + "@" + u.cluster
}

// scoped has the namespace before other arguments.
func (u *using) scoped(args []string) []string {
	namespace := u.ns
	if u.inNamespace {
		namespace += "@" + u.cluster
	}
	return append([]string{"-n", namespace}, args...)
}

// saysHow are words of refusals that tell a user what to do.
var saysHow = regexp.MustCompile(`NAME@CLUSTER|name (the cluster|one of them|it)|metadata\.cluster|context of|ask (one|the) cluster`)

// do runs kubectl, and reports whether it succeeds.
func (u *using) do(stdin string, args ...string) (out string, ok bool) {
	u.t.Helper()
	out, errs, err := u.kubectl.try(u.t.Context(), stdin, u.scoped(args)...)
	if err != nil {
		u.refuse(out + errs)
	}
	return out, err == nil
}

func (u *using) refuse(words string) {
	u.refusal = strings.Join(strings.Fields(words), " ")
	if !saysHow.MatchString(words) {
		u.fail("it fails, and does not say what to do: %.400s", u.refusal)
	}
}

// says runs what prints the name of the cluster in which it is.
func (u *using) says(args ...string) {
	u.t.Helper()
	if out, ok := u.do("", args...); ok {
		u.isOf(out)
	}
}

// isOf wants a text that is of the cluster.
func (u *using) isOf(text string) {
	for _, cluster := range u.clusters {
		if strings.Contains(text, cluster) != (cluster == u.cluster) {
			u.fail("%.200q is not of %s alone", text, u.cluster)
		}
	}
}

// like runs what prints the same as straight at the cluster, but for what is the view's.
func (u *using) like(args ...string) {
	u.t.Helper()
	straight := make([]string, len(args))
	for i, arg := range args {
		straight[i] = strings.ReplaceAll(arg, "@"+u.cluster, "")
	}
	for range 3 { // something may change between the two
		u.wrong, u.refusal = "", ""
		want := u.direct(u.t, u.cluster).run(u.t, append([]string{"-n", u.ns}, straight...)...)
		got, ok := u.do("", args...)
		if !ok {
			return
		}
		a, b := u.comparable(want), u.comparable(got)
		if a == b {
			return
		}
		u.fail("it prints something else than at the cluster: %s", firstDifference(a, b))
	}
}

// Patterns of what changes between two answers, and of what is the view's.
var (
	ages      = regexp.MustCompile(`\b(\d+[dhms])+\b|<invalid>`)
	counts    = regexp.MustCompile(`\(x\d+ over AGE\)`)
	dates     = regexp.MustCompile(`\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`)
	viewsMark = regexp.MustCompile(`,?clusterproxy\.open-cluster-management\.io/cluster(: |=)[-a-z0-9]+`)
	blanks    = regexp.MustCompile(`\s+`)
)

func (u *using) comparable(text string) string {
	text = viewsMark.ReplaceAllString(strings.ReplaceAll(text, "@"+u.cluster, ""), "")
	text = counts.ReplaceAllString(ages.ReplaceAllString(dates.ReplaceAllString(text, "DATE"), "AGE"), "")
	return blanks.ReplaceAllString(text, " ")
}

// firstDifference is where two texts begin to differ.
func firstDifference(want, got string) string {
	at := 0
	for at < min(len(want), len(got)) && want[at] == got[at] {
		at++
	}
	cut := func(text string) string { return text[max(at-60, 0):min(at+120, len(text))] }
	return fmt.Sprintf("want %q, got %q", cut(want), cut(got))
}

// changes runs what changes something, as value says, of the object of the kind on the cluster, and
// nothing of the others'.
func (u *using) changes(value func(cluster string) string, stdin string, args ...string) {
	u.t.Helper()
	before := map[string]string{}
	for _, cluster := range u.clusters {
		before[cluster] = value(cluster)
	}
	_, ok := u.do(stdin, args...)
	for _, cluster := range u.clusters {
		after := value(cluster)
		switch changed := after != before[cluster]; {
		case changed && cluster != u.cluster:
			u.fail("it has changed %s: %.200s", cluster, after)
		case changed && !ok:
			u.fail("it fails and has changed %s: %.200s (%.300s)", cluster, after, u.refusal)
		case changed && (strings.Contains(after, "@") || strings.Contains(after, "clusterproxy.")):
			u.fail("%s has what is the view's: %.400s", cluster, after)
		case !changed && cluster == u.cluster && ok:
			u.fail("it says that it is done and has changed nothing")
		}
	}
}

// namingTable is what was found, by use and kind.
type namingTable struct {
	mu    sync.Mutex
	cells map[string]map[string][]string
}

func (t *namingTable) add(use, kind, verdict string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cells[use] == nil {
		t.cells[use] = map[string][]string{}
	}
	t.cells[use][kind] = append(t.cells[use][kind], verdict)
}

// String has a line for each use, and below it the words of what is not right.
func (t *namingTable) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var b strings.Builder
	counts := map[string]int{}
	fmt.Fprintf(&b, "\nkubectl with NAME@CLUSTER (%d uses)\n", len(t.cells))
	for _, use := range slices.Sorted(maps.Keys(t.cells)) {
		fmt.Fprintf(&b, "  %-36s", use)
		var notes []string
		for _, kind := range slices.Sorted(maps.Keys(t.cells[use])) {
			sign := "right"
			for _, verdict := range t.cells[use][kind] {
				_, what, _ := strings.Cut(verdict, " ")
				word, _, _ := strings.Cut(what, ":")
				counts[word]++
				if word == "right" {
					continue
				}
				if sign = word; !slices.Contains(notes, verdict) {
					notes = append(notes, fmt.Sprintf("%s, %.300s", kind, verdict))
				}
			}
			fmt.Fprintf(&b, " %s %s;", kind, sign)
		}
		b.WriteString("\n")
		for _, note := range notes {
			fmt.Fprintf(&b, "      %s\n", note)
		}
	}
	fmt.Fprintf(&b, "  in all: %v\n", counts)
	return b.String()
}

// wantAllCommands wants each command of kubectl's own help to be used, or said why not.
func wantAllCommands(t *testing.T, k kubectl, uses []namingUse) {
	t.Helper()
	known := map[string]bool{}
	for command := range commandsNotTried {
		known[command] = true
	}
	for _, use := range uses {
		known[use.command] = true
	}
	var all []string
	for _, command := range helpCommands(t, k, "") {
		all = append(all, command)
		if commandsNotTried[command] == asksNobody {
			continue
		}
		for _, below := range helpCommands(t, k, command) {
			all = append(all, below)
			if !known[below] {
				all = append(all, helpCommands(t, k, below)...)
			}
		}
	}
	for _, command := range all {
		group := slices.ContainsFunc(all, func(other string) bool { return strings.HasPrefix(other, command+" ") })
		if !known[command] && !group {
			t.Errorf("kubectl has a command %q: say in namingReads or namingWrites what it does with NAME@CLUSTER, or in commandsNotTried why not", command)
		}
		delete(known, command)
	}
	for command := range known {
		t.Errorf("kubectl has no command %q any more", command)
	}
}

// helpLine is one of a command in kubectl's help. The headings of such lists end in "ommands:" or "):".
var helpLine = regexp.MustCompile(`^  ([a-z][-a-z]*) {2,}\S`)

// helpCommands are the commands below one, by kubectl's help.
func helpCommands(t *testing.T, k kubectl, parent string) []string {
	t.Helper()
	var all []string
	listed := false
	for line := range strings.Lines(k.run(t, append(strings.Fields(parent), "--help")...)) {
		line = strings.TrimRight(line, "\n")
		if line != "" && line[0] != ' ' {
			listed = regexp.MustCompile(`[Cc]ommands( \(.*\))?:$`).MatchString(line) && !strings.Contains(line, "plugins")
		}
		if m := helpLine.FindStringSubmatch(line); m != nil && listed {
			all = append(all, strings.TrimSpace(parent+" "+m[1]))
		}
	}
	if parent == "" && len(all) < 20 {
		t.Fatalf("kubectl's help has %d commands: it is not understood any more", len(all))
	}
	return all
}
