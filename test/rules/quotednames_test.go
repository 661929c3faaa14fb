package rules

import (
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var (
	// quotedName matches `name` in `file`, and what follows as long as it names other files of the same folder.
	quotedName = regexp.MustCompile("((?:(?:, | and )?`[A-Za-z.]+`)+) in `([a-z][a-z0-9/-]*\\.go)`")
	// limitRow matches a row of Limits: its value, and the constant that has it.
	limitRow = regexp.MustCompile("(?m)^\\| .+ \\| ([0-9]+)(?: (ms|s|min|KiB|MiB))? \\| `([A-Za-z]+)` in `(\\S+\\.go)` \\|$")
)

// units are those of Limits, times in nanoseconds.
var units = map[string]int64{"": 1, "ms": 1e6, "s": 1e9, "min": 60e9, "KiB": 1 << 10, "MiB": 1 << 20}

// TestQuotedNames holds each "`name` in `file`" of CONTRIBUTING.md to the file, which declares the name.
func TestQuotedNames(t *testing.T) {
	found := 0
	for _, match := range quotedName.FindAllStringSubmatch(read(t, "CONTRIBUTING.md"), -1) {
		if !strings.Contains(match[2], "/") {
			continue // a file beside the one before
		}
		declared, _ := declarations(t, match[2])
		for _, name := range regexp.MustCompile("[A-Za-z.]+").FindAllString(strings.ReplaceAll(match[1], " and ", ""), -1) {
			found++
			if !declared[name] {
				t.Errorf("CONTRIBUTING.md says that %s is in %s, which does not declare it", name, match[2])
			}
		}
	}
	if found == 0 {
		t.Error("CONTRIBUTING.md names nothing in a file")
	}
}

// TestLimits holds the page of limits to the constants that it names.
func TestLimits(t *testing.T) {
	const page = "docs/reference/limits.md"
	content := read(t, page)
	rows := limitRow.FindAllStringSubmatch(content, -1)
	if all := strings.Count(content, "` in `"); len(rows) == 0 || len(rows) != all {
		t.Errorf("%s has %d rows with a constant, of which %d are understood", page, all, len(rows))
	}
	for _, row := range rows {
		_, values := declarations(t, row[4])
		said, err := strconv.ParseInt(row[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if value, ok := values[row[3]]; !ok || value != said*units[row[2]] {
			t.Errorf("%s says %s %s of %s in %s, which has %d (%t)", page, row[1], row[2], row[3], row[4], value, ok)
		}
	}
}

// declarations are the names that a file declares, those of methods as Type.Name and as Name, and the values of its
// constants as far as numbers and units of time say them.
func declarations(t *testing.T, path string) (names map[string]bool, values map[string]int64) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root(t), path), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	names, values = map[string]bool{}, map[string]int64{}
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			names[d.Name.Name] = true
			if d.Recv != nil {
				of := d.Recv.List[0].Type
				if star, ok := of.(*ast.StarExpr); ok {
					of = star.X
				}
				if ident, ok := of.(*ast.Ident); ok {
					names[ident.Name+"."+d.Name.Name] = true
				}
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					names[spec.Name.Name] = true
				case *ast.ValueSpec:
					for i, name := range spec.Names {
						names[name.Name] = true
						if i < len(spec.Values) {
							if value := valueOf(spec.Values[i]); value != nil && value.Kind() == constant.Int {
								values[name.Name], _ = constant.Int64Val(value)
							}
						}
					}
				}
			}
		}
	}
	return names, values
}

// valueOf evaluates numbers, products, shifts and units of time; nil for anything else.
func valueOf(e ast.Expr) constant.Value {
	switch e := e.(type) {
	case *ast.BasicLit:
		return constant.MakeFromLiteral(e.Value, e.Kind, 0)
	case *ast.SelectorExpr:
		unit, ok := map[string]int64{"Millisecond": units["ms"], "Second": units["s"], "Minute": units["min"]}[e.Sel.Name]
		if !ok {
			return nil
		}
		return constant.MakeInt64(unit)
	case *ast.BinaryExpr:
		x, y := valueOf(e.X), valueOf(e.Y)
		switch {
		case x == nil || y == nil:
			return nil
		case e.Op == token.MUL:
			return constant.BinaryOp(x, token.MUL, y)
		case e.Op == token.SHL:
			n, _ := constant.Uint64Val(y)
			return constant.Shift(x, token.SHL, uint(n))
		}
	}
	return nil
}
