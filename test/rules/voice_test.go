package rules

import (
	"go/ast"
	"go/token"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// clause matches the beginning of a sentence whose subject is a clause, as in "What is late
// is refused": at the beginning of a text, of an item, or after another sentence. Titles and the cells of tables are no sentences.
var clause = regexp.MustCompile(`(?:^|[.:;!?]\s+|\*\*\s+|\n\s*(?:[-*]|\d+\.)\s+)((?:What|Who|Whoever|Whatever|Whom|Whether)\b[^.?!:|]*[.?!:|]?)`)

// clausesIn returns the sentences of a text that have a clause as subject. Questions are none.
func clausesIn(text string) (found []string) {
	for {
		at := clause.FindStringSubmatchIndex(text)
		if at == nil {
			return found
		}
		sentence := text[at[2]:at[3]]
		if !strings.HasSuffix(sentence, "?") {
			found = append(found, strings.Join(strings.Fields(sentence), " "))
		}
		// The sentence's end may begin the next one.
		text = text[at[3]-1:]
	}
}

// TestVoice looks at comments, at the messages of what is shipped, and at documents.
func TestVoice(t *testing.T) {
	report := func(where any, text string) {
		for _, sentence := range clausesIn(text) {
			t.Errorf("%v: %q has a clause as subject; name the thing that acts (CONTRIBUTING.md)", where, sentence)
		}
	}
	syntax(t, func(path string, files *token.FileSet, file *ast.File) {
		for _, group := range file.Comments {
			for paragraph := range strings.SplitSeq(group.Text(), "\n\n") {
				report(files.Position(group.Pos()), paragraph)
			}
		}
		for node := range ast.Preorder(file) {
			if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING && isShipped(path) {
				if text, err := strconv.Unquote(literal.Value); err == nil {
					report(files.Position(literal.Pos()), text)
				}
			}
		}
	})
	for _, path := range documents(t) {
		content := read(t, path)
		for paragraph := range strings.SplitSeq(content, "\n\n") {
			report(path, paragraph)
		}
	}
}

// documents are the Markdown files of the repository.
func documents(t *testing.T) []string {
	t.Helper()
	list := exec.CommandContext(t.Context(), "git", "ls-files", "*.md")
	list.Dir = root(t)
	out, err := list.Output()
	if err != nil {
		t.Fatalf("listing the documents: %v", err)
	}
	return strings.Fields(string(out))
}

func TestClausesIn(t *testing.T) {
	for text, want := range map[string]string{
		"What is late is refused. Others go on.":   "What is late is refused.",
		"It ends. Who waits\nis told. Who is it?":  "Who waits is told.",
		"Whatever it is.\nWhoever asks is refused": "Whatever it is.; Whoever asks is refused",
		"Rules:\n- What is new waits\n- the rest":  "What is new waits - the rest",
		"| `a` | What was refused | b |":           "",
		"It says what is wrong, and who did it.":   "",
		"## What is a view?\nIt is **What** it is": "",
	} {
		if got := strings.Join(clausesIn(text), "; "); got != want {
			t.Errorf("clausesIn(%q) = %q, want %q", text, got, want)
		}
	}
}

// TestInfoWithoutErrors holds logs to klog's conventions: failures are logged by Error, and
// information that is always there has no error.
func TestInfoWithoutErrors(t *testing.T) {
	syntax(t, func(path string, files *token.FileSet, file *ast.File) {
		for node := range ast.Preorder(file) {
			if call, ok := node.(*ast.CallExpr); ok && isShipped(path) && logsErrorAsInfo(call) {
				t.Errorf("%s: Info with an error: log it with Error if the process failed, with V(1) if only a developer needs it; a refusal has a reason and a message", files.Position(call.Pos()))
			}
		}
	})
}

// logsErrorAsInfo reports whether a call is Info with a key of an error, of a logger that
// has no verbosity.
func logsErrorAsInfo(call *ast.CallExpr) bool {
	function, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || function.Sel.Name != "Info" && function.Sel.Name != "InfoS" {
		return false
	}
	if logger, ok := function.X.(*ast.CallExpr); ok {
		if of, ok := logger.Fun.(*ast.SelectorExpr); ok && of.Sel.Name == "V" {
			return false
		}
	}
	for _, argument := range call.Args {
		if key, ok := argument.(*ast.BasicLit); ok && (key.Value == `"err"` || key.Value == `"error"`) {
			return true
		}
	}
	return false
}
