package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	maxFile     = 500
	maxFunction = 60
	// maxKitFunction is for packages that are for tests only.
	maxKitFunction = 80
	// Tests may be longer, tables and all.
	maxTestFile     = 550
	maxTestFunction = 150
)

// sources calls visit with every Go file of the module that is written by hand.
func sources(t *testing.T, visit func(path string, content []byte)) {
	t.Helper()
	top := root(t)
	err := filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name := entry.Name(); path != top && (strings.HasPrefix(name, ".") || name == "bin" || name == "vendor") {
				return filepath.SkipDir
			}
			return nil
		}
		name := entry.Name()
		if !strings.HasSuffix(name, ".go") || strings.HasPrefix(name, "zz_generated") || strings.HasSuffix(name, ".pb.go") {
			return nil
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		visit(filepath.ToSlash(relative), content)
		return nil
	})
	if err != nil {
		t.Fatalf("reading the sources: %v", err)
	}
}

// syntax calls visit with the syntax of every such file, comments included.
func syntax(t *testing.T, visit func(path string, files *token.FileSet, file *ast.File)) {
	t.Helper()
	sources(t, func(path string, content []byte) {
		files := token.NewFileSet()
		file, err := parser.ParseFile(files, path, content, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("parsing %s: %v", path, err)
			return
		}
		visit(path, files, file)
	})
}

// isShipped reports whether a file is part of what users run.
func isShipped(path string) bool {
	return !strings.HasPrefix(path, "test/") && !strings.HasSuffix(path, "_test.go")
}

func TestLength(t *testing.T) {
	syntax(t, func(path string, files *token.FileSet, file *ast.File) {
		fileLimit, limit := maxFile, maxFunction
		switch {
		case strings.HasSuffix(path, "_test.go"):
			fileLimit, limit = maxTestFile, maxTestFunction
		case strings.HasPrefix(path, "test/"):
			limit = maxKitFunction
		}
		if lines := files.File(file.FileStart).LineCount() - 1; lines > fileLimit {
			t.Errorf("%s has %d lines, more than %d; split it by subject", path, lines, fileLimit)
		}
		for _, declaration := range file.Decls {
			function, ok := declaration.(*ast.FuncDecl)
			if !ok {
				continue
			}
			first, last := files.Position(function.Pos()).Line, files.Position(function.End()).Line
			if lines := last - first + 1; lines > limit {
				t.Errorf("%s:%d: function %s has %d lines, more than %d", path, first, function.Name, lines, limit)
			}
		}
	})
}

// TestForbidden looks at the syntax, so that comments and messages may speak of
// what code must not do.
func TestForbidden(t *testing.T) {
	syntax(t, func(path string, files *token.FileSet, file *ast.File) {
		for node := range ast.Preorder(file) {
			if what := forbidden(file, path, node); what != "" {
				t.Errorf("%s: %s", files.Position(node.Pos()), what)
			}
		}
	})
}

func forbidden(file *ast.File, path string, node ast.Node) string {
	switch node := node.(type) {
	case *ast.Ident:
		if node.Name == "InsecureSkipVerify" {
			return "InsecureSkipVerify; verify the peer, with a CA made for the test if need be"
		}
	case *ast.CompositeLit:
		if isSelector(node.Type, "httputil", "ReverseProxy") && hasField(node, "Director") {
			return "ReverseProxy with Director; use Rewrite, after which hop-by-hop headers cannot remove what was set"
		}
	case *ast.CallExpr:
		// In a bubble of testing/synctest, to sleep is to set the clock.
		if isSelector(node.Fun, "time", "Sleep") && strings.HasSuffix(path, "_test.go") && !imports(file, "testing/synctest") {
			return "time.Sleep in a test; wait for a condition, or use testing/synctest"
		}
	}
	return ""
}

func imports(file *ast.File, path string) bool {
	return slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool { return spec.Path.Value == strconv.Quote(path) })
}

func isSelector(expression ast.Expr, qualifier, name string) bool {
	selector, ok := expression.(*ast.SelectorExpr)
	if !ok || selector.Sel.Name != name {
		return false
	}
	identifier, ok := selector.X.(*ast.Ident)
	return ok && identifier.Name == qualifier
}

func hasField(literal *ast.CompositeLit, name string) bool {
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == name {
				return true
			}
		}
	}
	return false
}
