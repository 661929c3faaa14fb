package rules

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// TestBodiesAreBounded finds what decodes or reads to the end what may come from outside, in
// all that runs. Its input must be bounded before: in the same function, by a reader that
// ends or by bytes from one, or elsewhere, as bounded says.
func TestBodiesAreBounded(t *testing.T) {
	unused := map[string]bool{}
	for place := range bounded {
		unused[place] = true
	}
	sources(t, func(path string, content []byte) {
		if strings.HasSuffix(path, "_test.go") || !withinAny(path, []string{"pkg", "cmd"}) || within(path, "pkg/tunnel/tunneltest") {
			return
		}
		for _, found := range unbounded(t, path, content) {
			place := path + " " + found.function
			delete(unused, place)
			if bounded[place] == "" {
				t.Errorf("%s:%d: %s reads what has no bound that is seen here; read from an io.LimitReader or http.MaxBytesReader in function %s, or say in the list of this test what bounds it", path, found.line, found.call, found.function)
			}
		}
	})
	for place := range unused {
		t.Errorf("%s decodes nothing without a bound: take it out of the list of this test", place)
	}
}

// TestUnboundedIsFound has decoders that the test must find, and some that it must not.
func TestUnboundedIsFound(t *testing.T) {
	const fixture = `package fixture
func all(r *http.Request) { body, _ := io.ReadAll(r.Body); _ = body }
func stream(r *http.Response) { _ = json.NewDecoder(r.Body).Decode(&x) }
func text(body []byte) { _ = json.Unmarshal(body, &x) }
func zipped(r io.Reader) { z, _ := gzip.NewReader(r); _ = z }
func buffer(r io.Reader) { b := new(bytes.Buffer); _, _ = b.ReadFrom(r) }
func message(body []byte) { _ = status.Unmarshal(body) }
func document(body []byte) { _ = yaml.UnmarshalStrict(body, &x) }
func replaced(r io.Reader) { limited := io.LimitReader(r, 9); limited = r; _, _ = io.ReadAll(limited) }
func inner(r io.Reader) { go func() { _, _ = io.ReadAll(r) }() }
var atTop = func(r io.Reader) { _, _ = io.ReadAll(r) }
func limited(r io.Reader) { _, _ = io.ReadAll(io.LimitReader(r, 9)) }
func limitedBefore(r io.Reader) { l := io.LimitReader(r, 9); body, err := io.ReadAll(l); _ = json.Unmarshal(body, &x); _ = err }
func upload(w http.ResponseWriter, r *http.Request) { d := json.NewDecoder(http.MaxBytesReader(w, r.Body, 9)); _ = d }
`
	want := []string{"all", "stream", "text", "zipped", "buffer", "message", "document", "replaced", "inner", ""}
	var got []string
	for _, found := range unbounded(t, "fixture.go", []byte(fixture)) {
		got = append(got, found.function)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// decoders are functions and methods that take memory for their argument, by their names;
// those of packages by both names. Methods are found by name alone.
var decoders = map[string]bool{
	"io.ReadAll": true, "ioutil.ReadAll": true, "gzip.NewReader": true, "flate.NewReader": true, "zlib.NewReader": true, "zstd.NewReader": true,
	"json.NewDecoder": true, "yaml.NewDecoder": true, "NewYAMLOrJSONDecoder": true, "ReadFrom": true,
	"Unmarshal": true, "UnmarshalStrict": true, "YAMLToJSON": true, "YAMLToJSONStrict": true, "ToProtoBinary": true,
}

// limits are what makes a reader that ends.
var limits = []string{"io.LimitReader", "http.MaxBytesReader", "bytes.NewReader", "strings.NewReader", "allowedReader"}

type decoding struct {
	function, call string
	line           int
}

// unbounded returns the calls of decoders in a file whose argument is not seen to be bounded.
func unbounded(t *testing.T, path string, content []byte) (all []decoding) {
	t.Helper()
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, path, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatalf("parsing %s: %v", path, err)
	}
	for _, declaration := range file.Decls {
		name := ""
		if function, ok := declaration.(*ast.FuncDecl); ok {
			name = function.Name.Name
		}
		ast.Inspect(declaration, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok || len(call.Args) == 0 || !isDecoder(call) {
				return true
			}
			if !isBounded(declaration, call.Args[0], 0) {
				all = append(all, decoding{name, nameOf(call.Fun), files.Position(call.Pos()).Line})
			}
			return true
		})
	}
	return all
}

func isDecoder(call *ast.CallExpr) bool {
	name := nameOf(call.Fun)
	if decoders[name] {
		return true
	}
	_, last, method := strings.Cut(name, ".")
	return method && decoders[last]
}

// nameOf writes a function with what it is a method of, if that is a name.
func nameOf(expression ast.Expr) string {
	switch expression := expression.(type) {
	case *ast.Ident:
		return expression.Name
	case *ast.SelectorExpr:
		if of, ok := expression.X.(*ast.Ident); ok {
			return of.Name + "." + expression.Sel.Name
		}
		return "?." + expression.Sel.Name
	}
	return ""
}

// isBounded reports whether a value is a reader that ends, or was read from one: in itself, or
// by all that the function assigns to it.
func isBounded(function ast.Node, value ast.Expr, depth int) bool {
	if depth > 4 {
		return false
	}
	switch value := value.(type) {
	case *ast.CallExpr:
		if slices.Contains(limits, nameOf(value.Fun)) {
			return true
		}
		return nameOf(value.Fun) == "io.ReadAll" && isBounded(function, value.Args[0], depth+1)
	case *ast.UnaryExpr:
		literal, ok := value.X.(*ast.CompositeLit)
		return ok && slices.Contains(limits, nameOf(literal.Type))
	case *ast.Ident:
		assigned, all := 0, true
		ast.Inspect(function, func(node ast.Node) bool {
			assign, ok := node.(*ast.AssignStmt)
			if !ok {
				return true
			}
			for i, left := range assign.Lhs {
				if name, ok := left.(*ast.Ident); ok && name.Name == value.Name {
					assigned++
					right := assign.Rhs[min(i, len(assign.Rhs)-1)]
					all = all && isBounded(function, right, depth+1)
				}
			}
			return true
		})
		return assigned > 0 && all
	}
	return false
}
