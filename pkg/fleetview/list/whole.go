package list

import (
	"bytes"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// Rewrite makes a Table or a list in JSON the view's.
func Rewrite(rewriter *merge.Rewriter, body []byte) ([]byte, error) {
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
