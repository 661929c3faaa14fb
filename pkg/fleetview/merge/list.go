package merge

import (
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ListMeta is what a list or Table says of itself.
type ListMeta struct {
	APIVersion, Kind          string
	ResourceVersion, Continue string
	// RemainingItemCount is how many items follow on later pages, if the member says it.
	RemainingItemCount *int64
}

// readMetadata sets what a list's metadata in JSON says.
func (m *ListMeta) readMetadata(metadata []byte) error {
	var read struct {
		ResourceVersion    string `json:"resourceVersion"`
		Continue           string `json:"continue"`
		RemainingItemCount *int64 `json:"remainingItemCount"`
	}
	if err := json.Unmarshal(metadata, &read); err != nil {
		return fmt.Errorf("reading a list's metadata: %w", err)
	}
	m.ResourceVersion, m.Continue, m.RemainingItemCount = read.ResourceVersion, read.Continue, read.RemainingItemCount
	return nil
}

// isListKind reports whether a kind is that of a list or Table by its name. Lists of custom
// resources can have others.
func isListKind(kind string) bool { return strings.HasSuffix(kind, "List") || kind == "Table" }

// ItemsOf returns what the items of a list are. Only items of custom resources say it.
func ItemsOf(list ListMeta) (metav1.TypeMeta, error) {
	kind, ok := strings.CutSuffix(list.Kind, "List")
	if !ok || list.APIVersion == "" {
		return metav1.TypeMeta{}, fmt.Errorf("reading a list: it is %q and does not say what its items are", list.Kind)
	}
	return metav1.TypeMeta{APIVersion: list.APIVersion, Kind: kind}, nil
}

// NotListError says that a document is neither a list nor a Table.
type NotListError struct {
	// Kind is the document's kind, such as "Status", if it has one.
	Kind string
	// Beginning is the document's beginning: at least 4 KiB, or all of it.
	Beginning []byte
}

func (e *NotListError) Error() string {
	if e.Kind == "" {
		return "reading a list: the answer is neither a list nor a Table"
	}
	return fmt.Sprintf("reading a list: the answer is a %q, neither a list nor a Table", e.Kind)
}
