package fleetview

import (
	"bytes"
	"mime"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// rewriteAnswer makes an object, or a Table of one, the view's, and leaves a Status as it
// is. Its result is no part of body, which others may borrow then.
func rewriteAnswer(rewriter *merge.Rewriter, contentType string, body []byte) ([]byte, error) {
	if len(body) == 0 {
		return body, nil
	}
	longer := make([]byte, 0, len(body)+rewriteRoom)
	if isProtobuf(contentType) {
		key, err := merge.KeyOfProtobuf(body)
		if err != nil || key.Kind == "Status" {
			return bytes.Clone(body), err
		}
		return rewriter.AppendProtobuf(longer, body)
	}
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
		return rewriteList(rewriter, body)
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
func rewriteDeleted(rewriter *merge.Rewriter, contentType string, body []byte) ([]byte, error) {
	if !isProtobuf(contentType) {
		if key, err := merge.KeyOfJSON(body); err != nil || key.Kind == "Status" {
			return body, err
		}
		return rewriteList(rewriter, body)
	}
	if key, err := merge.KeyOfProtobuf(body); err != nil || key.Kind == "Status" {
		return body, err
	}
	meta, items, err := merge.ReadProtobufList(body)
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		if items[i], err = rewriter.AppendProtobufItem(nil, item); err != nil {
			return nil, err
		}
	}
	meta.ResourceVersion = rewriter.Version(meta.ResourceVersion)
	return merge.AppendProtobufList(nil, meta, items), nil
}

// rewriteList makes a Table or a list in JSON the view's.
func rewriteList(rewriter *merge.Rewriter, body []byte) ([]byte, error) {
	reader := merge.NewReader(bytes.NewReader(body))
	item, err := reader.Next()
	if err != nil && !eof(err) {
		return nil, err
	}
	out, add := []byte(openingItems), rewriter.AppendItem
	var columns []byte
	if reader.Columns() != nil {
		var table merge.Table
		layout, err := table.Add(reader.Columns())
		if err != nil {
			return nil, err
		}
		out, columns = []byte(openingRows), table.Definitions()
		add = func(dst []byte, row merge.Item) ([]byte, error) { return layout.AppendRow(dst, row, rewriter) }
	}
	for begin := len(out); err == nil; item, err = reader.Next() {
		if len(out) > begin {
			out = append(out, ',')
		}
		if out, err = add(out, item); err != nil {
			return nil, err
		}
	}
	if !eof(err) {
		return nil, err
	}
	meta := reader.Meta()
	closing, err := ending(meta, listMeta{ListMeta: metav1.ListMeta{ResourceVersion: rewriter.Version(meta.ResourceVersion)}}, columns)
	return append(out, closing...), err
}

func isProtobuf(contentType string) bool {
	media, _, err := mime.ParseMediaType(contentType)
	return err == nil && media == protobufType
}
