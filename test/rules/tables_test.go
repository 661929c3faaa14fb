package rules

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// tables are the tables whose rows name the tests that hold them.
var tables = []struct {
	path, prefix string
	rows         int
}{
	{"SECURITY.md", "T", 47},
	{"test/faults.md", "F", 46},
}

// testName matches the name of a test in backquotes, with a subtest if one is meant.
var testName = regexp.MustCompile("`((?:Test|Fuzz)[A-Z][A-Za-z0-9_]*)((?:/[^`/]+)*)`")

// TestTablesNameTests holds the tables to the code: each row names tests that
// exist, or says in its last cell, after "None:", why it has none.
func TestTablesNameTests(t *testing.T) {
	functions, literals := testNames(t)
	for _, table := range tables {
		content := read(t, table.path)
		if _, found := lineWith(content, fmt.Sprintf("| %s%d |", table.prefix, table.rows+1)); found {
			t.Errorf("%s has more than %d rows, which this test does not look at", table.path, table.rows)
		}
		for number := 1; number <= table.rows; number++ {
			id := fmt.Sprintf("| %s%d |", table.prefix, number)
			row, found := lineWith(content, id)
			if !found {
				t.Errorf("%s has no row that begins with %q", table.path, id)
				continue
			}
			names := testName.FindAllStringSubmatch(row, -1)
			if len(names) == 0 && !strings.Contains(row, "| None: ") {
				t.Errorf("%s, %s%d: name a test in backquotes, or say why there is none after \"None: \"", table.path, table.prefix, number)
			}
			for _, name := range names {
				if !functions[name[1]] {
					t.Errorf("%s, %s%d: there is no test %s", table.path, table.prefix, number, name[1])
				}
				for _, subtest := range strings.FieldsFunc(name[2], func(r rune) bool { return r == '/' }) {
					if !literals[subtest] {
						t.Errorf("%s, %s%d: no test has a subtest %q", table.path, table.prefix, number, subtest)
					}
				}
			}
		}
	}
}

func lineWith(content, prefix string) (string, bool) {
	for line := range strings.Lines(content) {
		if strings.HasPrefix(line, prefix) {
			return line, true
		}
	}
	return "", false
}

// testNames returns the names of all test functions and all string literals
// below test and in test files, where the names of subtests are.
func testNames(t *testing.T) (functions, literals map[string]bool) {
	t.Helper()
	functions, literals = map[string]bool{}, map[string]bool{}
	syntax(t, func(path string, _ *token.FileSet, file *ast.File) {
		if isShipped(path) {
			return
		}
		for node := range ast.Preorder(file) {
			switch node := node.(type) {
			case *ast.FuncDecl:
				functions[node.Name.Name] = functions[node.Name.Name] || strings.HasSuffix(path, "_test.go") && node.Recv == nil
			case *ast.BasicLit:
				if text, err := strconv.Unquote(node.Value); err == nil && node.Kind == token.STRING {
					literals[text] = true
					literals[strings.ReplaceAll(text, " ", "_")] = true
				}
			}
		}
	})
	return functions, literals
}
