package rules

import (
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// upgradeReaders may read the header Upgrade, and why. Others ask httprelay.IsUpgrade.
var upgradeReaders = map[string]string{
	"pkg/httprelay/upgrade.go":        "it is the one reading",
	"pkg/frames/follower.go":          "it reads answers, to a request that was granted",
	"pkg/kubectlplugin/localproxy.go": "it chooses a transport on the user's machine, and grants nothing",
}

// TestOneReadingOfRequests wants package apirequest to be the one place that reads what a
// request to a Kubernetes API wants and which subresources leave the API, and httprelay.IsUpgrade
// to be the one that reads what an upgrade is. A second list would miss the next subresource.
func TestOneReadingOfRequests(t *testing.T) {
	syntax(t, func(path string, files *token.FileSet, file *ast.File) {
		if !isShipped(path) || strings.HasPrefix(path, "pkg/apirequest/") {
			return
		}
		for node := range ast.Preorder(file) {
			switch found := secondReading(node); {
			case found == "" || found == readsUpgrade && upgradeReaders[path] != "":
			default:
				t.Errorf("%s: %s", files.Position(node.Pos()), found)
			}
		}
	})
}

const readsUpgrade = "the header Upgrade is read here: use httprelay.IsUpgrade"

// secondReading says what a node reads that package apirequest or httprelay reads already.
func secondReading(node ast.Node) string {
	switch n := node.(type) {
	case *ast.CallExpr:
		if method, ok := n.Fun.(*ast.SelectorExpr); ok && (method.Sel.Name == "Get" || method.Sel.Name == "Values") && len(n.Args) == 1 && isText(n.Args[0], "Upgrade") {
			return readsUpgrade
		}
	case *ast.IndexExpr:
		if isText(n.Index, "Upgrade") {
			return readsUpgrade
		}
	case *ast.CompositeLit:
		if kind, ok := n.Type.(*ast.SelectorExpr); ok && kind.Sel.Name == "RequestInfoFactory" {
			return "requests are read here: use apirequest.Resolver"
		}
		both := func(text string) bool {
			return slices.ContainsFunc(n.Elts, func(e ast.Expr) bool { return isText(e, text) })
		}
		if both("exec") && both("attach") {
			return "subresources that leave the Kubernetes API are listed here: use apirequest.LeavesAPI"
		}
	}
	return ""
}

func isText(e ast.Expr, text string) bool {
	literal, ok := e.(*ast.BasicLit)
	return ok && literal.Kind == token.STRING && literal.Value == strconv.Quote(text)
}
