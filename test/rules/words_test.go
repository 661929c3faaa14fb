package rules

import (
	"go/ast"
	"go/token"
	"regexp"
	"strings"
	"testing"
	"unicode"
)

// unusedWords are words that CONTRIBUTING's glossary says are not used, by the word
// of the field for each. Words that also have an ordinary meaning (kept, record,
// call, claim, hop, loopback, master, operator) cannot be checked.
var unusedWords = map[string]string{
	"door": "endpoint", "doorway": "endpoint",
	"stranger": "unauthenticated client",
	"turnover": "GOAWAY", "handover": "in-process listener",
	"vouch": "front-proxy headers", "vouched": "front-proxy headers", "vouches": "front-proxy headers",
	"patience": "timeout",
	"owe":      "target", "owed": "target",
	"spoke": "managed cluster",
	"anp":   "konnectivity",
}

// withUnusedWords are the files that need one of them: identifiers of packages that
// are not ours, and this list.
var withUnusedWords = map[string]string{
	"test/lab/binaries/ocm/main.go": "OCM's packages are called spoke",
	"test/rules/words_test.go":      "",
}

var word = regexp.MustCompile(`[A-Za-z]+`)

// TestWords looks at identifiers and comments. Messages and flags may quote others.
func TestWords(t *testing.T) {
	syntax(t, func(path string, files *token.FileSet, file *ast.File) {
		if _, ok := withUnusedWords[path]; ok {
			return
		}
		check := func(at token.Pos, words []string) {
			for _, w := range words {
				w = strings.ToLower(w)
				if use := unusedWords[strings.TrimSuffix(w, "s")]; use != "" {
					t.Errorf("%s: %q is not used; the word is %s (CONTRIBUTING.md, Glossary)", files.Position(at), w, use)
				}
			}
		}
		for _, group := range file.Comments {
			for _, comment := range group.List {
				check(comment.Pos(), word.FindAllString(comment.Text, -1))
			}
		}
		for node := range ast.Preorder(file) {
			if identifier, ok := node.(*ast.Ident); ok {
				check(identifier.Pos(), partsOf(identifier.Name))
			}
		}
	})
}

// partsOf splits an identifier at its capitals: handOver has the parts hand, Over,
// and handOver as a whole.
func partsOf(name string) []string {
	parts := strings.FieldsFunc(strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return r
		}
		return ' '
	}, name), unicode.IsSpace)
	for _, part := range parts {
		begin := 0
		for i, r := range part {
			if unicode.IsUpper(r) && i > 0 {
				parts = append(parts, part[begin:i])
				begin = i
			}
		}
		parts = append(parts, part[begin:])
	}
	return parts
}

func TestPartsOf(t *testing.T) {
	for name, want := range map[string]string{
		"handOver": "handOver hand Over", "findDoors": "findDoors find Doors", "owed": "owed owed", "Test_door2": "Test door Test door",
	} {
		if got := strings.Join(partsOf(name), " "); got != want {
			t.Errorf("partsOf(%q) = %q, want %q", name, got, want)
		}
	}
}
