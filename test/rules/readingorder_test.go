package rules

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// unordered are packages whose files are not in order yet.
var unordered = []string{"pkg/carrier", "test/scale"}

// TestReadingOrder holds the list of files at the end of a doc.go to its order: a file
// uses only files that the list names below it, so that a reader who goes down the list
// meets a name before what it is made of, and two files that use each other are noticed.
func TestReadingOrder(t *testing.T) {
	for _, p := range list(t) {
		content, err := os.ReadFile(filepath.Join(p.Dir, "doc.go"))
		if err != nil || slices.Contains(unordered, p.path()) {
			continue
		}
		_, text, ok := strings.Cut(string(content), "# Files\n")
		if !ok {
			continue
		}
		place := map[string]int{}
		for i, name := range fileName.FindAllString(text, -1) {
			if _, ok := place[name]; !ok {
				place[name] = i
			}
		}
		for _, use := range usesBetweenFiles(t, p.Dir) {
			from, listed := place[use.from]
			to, alsoListed := place[use.to]
			if listed && alsoListed && to < from {
				t.Errorf("%s/doc.go lists %s above %s, which uses %s of it", p.path(), use.to, use.from, use.name)
			}
		}
	}
}

// use says that file from uses a name that file to declares.
type use struct{ from, to, name string }

// usesBetweenFiles returns the uses between files of one folder, one for each pair of
// files. Imports are not loaded: names of this package resolve without them.
func usesBetweenFiles(t *testing.T, dir string) []use {
	t.Helper()
	files := token.NewFileSet()
	var parsed []*ast.File
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		file, err := parser.ParseFile(files, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		parsed = append(parsed, file)
	}
	info := types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: noImports{}, Error: func(error) {}}
	pkg, _ := config.Check(dir, files, parsed, &info)
	fileOf := func(at token.Pos) string { return filepath.Base(files.Position(at).Filename) }
	var uses []use
	seen := map[[2]string]bool{}
	for identifier, object := range info.Uses {
		if object.Pkg() != pkg || object.Parent() != pkg.Scope() && !isMethod(object) {
			continue
		}
		from, to := fileOf(identifier.Pos()), fileOf(object.Pos())
		if pair := [2]string{from, to}; from != to && !seen[pair] {
			seen[pair] = true
			uses = append(uses, use{from, to, object.Name()})
		}
	}
	return uses
}

// isMethod reports whether an object is a method.
func isMethod(object types.Object) bool {
	f, ok := object.(*types.Func)
	return ok && f.Signature().Recv() != nil
}

type noImports struct{}

func (noImports) Import(string) (*types.Package, error) {
	return nil, errors.New("imports are not loaded")
}
