package list

import (
	"encoding/json"
	"errors"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/fault"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/watch"
)

// A list's own metadata follows its items: until then it is not known.
const (
	openingItems = `{"items":[`
	openingRows  = `{"rows":[`
)

// ending closes the items or rows and says what they are.
func ending(meta merge.ListMeta, list listMeta, columns json.RawMessage) ([]byte, error) {
	rest, err := json.Marshal(struct {
		Kind              string          `json:"kind"`
		APIVersion        string          `json:"apiVersion"`
		Metadata          listMeta        `json:"metadata"`
		ColumnDefinitions json.RawMessage `json:"columnDefinitions,omitempty"`
	}{meta.Kind, meta.APIVersion, list, columns})
	if err != nil {
		return nil, err
	}
	return append(append([]byte("],"), rest[1:]...), '\n'), nil
}

// listMeta is the metadata of a list. Clients that decode it as it is in Go lose the annotations.
type listMeta struct {
	metav1.ListMeta
	Annotations map[string]string `json:"annotations,omitempty"`
}

// missingOf says for programs what Warnings say for people, and of all clusters.
func missingOf(failures []*fault.Fault) map[string]string {
	if len(failures) == 0 {
		return nil
	}
	return map[string]string{watch.AnnotationMissing: strings.Join(fault.Clusters(failures), ",")}
}

// eof reports whether an answer was read to its end.
func eof(err error) bool { return errors.Is(err, io.EOF) }
