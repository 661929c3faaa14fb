package rules

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// pages are the documents that users read: those of docs, the ones that lead there, and the examples'.
func pages(t *testing.T) (found []string) {
	t.Helper()
	for _, document := range documents(t) {
		if document == "README.md" || document == "FAQ.md" || strings.HasPrefix(document, "docs/") || strings.HasPrefix(document, "examples/") {
			found = append(found, document)
		}
	}
	return found
}

// maxWords are how long the two documents may be that a reader sees first.
var maxWords = map[string]int{"README.md": 900, "FAQ.md": 1500}

// TestPages wants every page of docs in its contents once, below the heading of its kind, with one title; README.md
// and FAQ.md short; and no line so long that a terminal breaks it.
func TestPages(t *testing.T) {
	kind := regexp.MustCompile(`^docs/(README|(tutorials|how-to|reference|explanation|runbooks)/[\w-]+)\.md$`)
	listed := contents(t)
	for _, page := range pages(t) {
		content := read(t, page)
		if words := len(strings.Fields(content)); maxWords[page] > 0 && words > maxWords[page] {
			t.Errorf("%s has %d words, want %d at most: a page of docs has room", page, words, maxWords[page])
		}
		for number, line := range strings.Split(content, "\n") {
			if length := len([]rune(line)); length > 160 {
				t.Errorf("%s:%d has %d characters, want 160 at most", page, number+1, length)
			}
		}
		name, ok := strings.CutPrefix(page, "docs/")
		if !ok {
			continue
		}
		if !kind.MatchString(page) {
			t.Errorf("%s is in no folder of tutorials, how-to, reference, explanation or runbooks", page)
		}
		if !strings.HasPrefix(content, "# ") {
			t.Errorf("%s does not begin with a title", page)
		}
		folder, _, _ := strings.Cut(name, "/")
		if under := listed[name]; name != "README.md" && (len(under) != 1 || under[0] != folder) {
			t.Errorf("docs/README.md lists %s below %q, want it once, below its kind", page, under)
		}
	}
}

// contents are the pages of docs/README.md, each with the kinds below which it lists them.
func contents(t *testing.T) map[string][]string {
	t.Helper()
	listed := map[string][]string{}
	for _, section := range strings.Split(read(t, "docs/README.md"), "\n## ")[1:] {
		title, list, _ := strings.Cut(section, "\n")
		kind, _, _ := strings.Cut(strings.ToLower(title), ":")
		for _, found := range link.FindAllStringSubmatch(list, -1) {
			listed[found[1]] = append(listed[found[1]], kind)
		}
	}
	return listed
}

var (
	fenced  = regexp.MustCompile("(?ms)^```.*?^```$")
	code    = regexp.MustCompile("(?m)^    .*$|`[^`\n]*`")
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ (.+)$`)
	anchor  = regexp.MustCompile(`<a id="([^"]+)">`)
	noWord  = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
	linked  = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// anchorsOf are those that GitHub makes of a document's headings, and those that it has itself.
func anchorsOf(content string) map[string]bool {
	anchors := map[string]bool{}
	content = fenced.ReplaceAllString(content, "")
	for _, h := range heading.FindAllStringSubmatch(content, -1) {
		text := strings.ToLower(linked.ReplaceAllString(h[1], "$1"))
		anchors[strings.ReplaceAll(noWord.ReplaceAllString(text, ""), " ", "-")] = true
	}
	for _, a := range anchor.FindAllStringSubmatch(content, -1) {
		anchors[a[1]] = true
	}
	return anchors
}

// TestLinks wants each link of a document to lead to a file or folder, and to a heading if it names one.
func TestLinks(t *testing.T) {
	for _, document := range documents(t) {
		content := code.ReplaceAllString(fenced.ReplaceAllString(read(t, document), ""), "")
		for _, found := range link.FindAllStringSubmatch(content, -1) {
			to, fragment, _ := strings.Cut(found[1], "#")
			if strings.Contains(to, ":") {
				continue // a URL
			}
			target := document
			if to != "" {
				target = path.Join(path.Dir(document), to)
			}
			if _, err := os.Stat(filepath.Join(root(t), filepath.FromSlash(target))); err != nil {
				t.Errorf("%s links %s, which does not exist", document, found[1])
			} else if fragment != "" && strings.HasSuffix(target, ".md") && !anchorsOf(read(t, target))[fragment] {
				t.Errorf("%s links %s, which has no such heading", document, found[1])
			}
		}
	}
}

// mentioned matches the path of a document in what is no document: messages, comments, values.
var mentioned = regexp.MustCompile(`\b(?:docs/[a-z-]+/[\w-]+|FAQ|README|METRICS)\.md(?:#([\w-]+))?`)

// TestMentions wants documents to exist that messages, comments and the chart send their readers to.
func TestMentions(t *testing.T) {
	check := func(file string, content []byte) {
		for _, found := range mentioned.FindAllSubmatch(content, -1) {
			document, _, _ := strings.Cut(string(found[0]), "#")
			if strings.Contains(document, "/") || len(found[1]) > 0 {
				if text, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(document))); err != nil {
					t.Errorf("%s names %s, which does not exist", file, document)
				} else if len(found[1]) > 0 && !anchorsOf(string(text))[string(found[1])] {
					t.Errorf("%s names %s, which has no such heading", file, found[0])
				}
			}
		}
	}
	sources(t, check)
	for _, pattern := range []string{"values.yaml", "files/*", "files/dashboards/*", "templates/*"} {
		files, err := filepath.Glob(filepath.Join(root(t), "charts/cluster-proxy", pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if content, err := os.ReadFile(file); err == nil { // no folder
				check(file, content)
			}
		}
	}
}

// TestCheckIDs holds the page of findings to the plugin: it explains each ID, and no other.
func TestCheckIDs(t *testing.T) {
	page := read(t, "docs/reference/check-ids.md")
	id := regexp.MustCompile(`\bID: +"([a-z-]+)"|\bhub\w+ += "(hub-[a-z]+)"|\.try\(ctx, "(test-[a-z]+)"`)
	found := map[string]bool{}
	sources(t, func(file string, content []byte) {
		if strings.HasPrefix(file, "pkg/kubectlplugin/diagnose/") && isShipped(file) {
			for _, match := range id.FindAllSubmatch(content, -1) {
				found[string(match[1])+string(match[2])+string(match[3])] = true
			}
		}
	})
	if len(found) < 20 {
		t.Fatalf("the plugin has %d IDs of findings: something is wrong with the test", len(found))
	}
	for name := range found {
		if !strings.Contains(page, "\n| `"+name+"` |") {
			t.Errorf("docs/reference/check-ids.md has no row of %s", name)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|").FindAllStringSubmatch(page, -1) {
		if !found[row[1]] {
			t.Errorf("docs/reference/check-ids.md explains %s, which the plugin does not find", row[1])
		}
	}
}
