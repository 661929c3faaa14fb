package fleetview

import (
	"bytes"
	"net/http"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/list"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// relayed are the headers of a member's answer that clients get to see.
var relayed = []string{"Warning", "Retry-After", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid"}

func copyHeaders(to, from http.Header) {
	for _, name := range relayed {
		if values := from[name]; len(values) > 0 {
			to[name] = values
		}
	}
	to.Set("Cache-Control", "no-cache, private")
}

// rewriteAnswer makes an object, or a Table of one, the view's, and leaves a Status as it
// is. Its result is no part of body, which others may borrow then.
func rewriteAnswer(rewriter *merge.Rewriter, body []byte) ([]byte, error) {
	if len(body) == 0 {
		return body, nil
	}
	longer := make([]byte, 0, len(body)+rewriteRoom)
	var indexer merge.Indexer
	item, err := indexer.Item(body)
	if err != nil {
		return nil, err
	}
	key, err := merge.KeyOfItem(item)
	switch {
	case err != nil || key.Kind == "Status":
		return bytes.Clone(body), err
	case key.Kind == "Table":
		return list.Rewrite(rewriter, body)
	}
	answer, err := rewriter.AppendItem(longer, item)
	if err == nil && bytes.HasSuffix(body, []byte("\n")) {
		answer = append(answer, '\n')
	}
	return answer, err
}

// rewriteRoom is about how much longer an object of a view is.
const rewriteRoom = 256

// rewriteDeleted is rewriteAnswer for the answer to deletecollection, which may be a list
// of what was deleted.
func rewriteDeleted(rewriter *merge.Rewriter, body []byte) ([]byte, error) {
	if key, err := merge.KeyOfJSON(body); err != nil || key.Kind == "Status" {
		return body, err
	}
	return list.Rewrite(rewriter, body)
}
