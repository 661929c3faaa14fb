package encoding

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// lineEvent is one event in JSON.
type lineEvent struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

const (
	Added    = "ADDED"
	Modified = "MODIFIED"
	Deleted  = "DELETED"
	Bookmark = "BOOKMARK"
	Failed   = "ERROR"
)

// kinds are those of events about objects and positions.
var kinds = []string{Added, Modified, Deleted, Bookmark}

// jsonEvent returns the next event of a watch in JSON, where each is a line. Its error is
// io.EOF if the stream ends between events, and says what an ERROR event does.
func (in *input) jsonEvent() (kind string, object []byte, err error) {
	line, err := in.line()
	if err != nil {
		return "", nil, err
	}
	for _, kind := range kinds {
		// This is what apiserver writes. The reader of the object says if it is not whole.
		prefix := `{"type":"` + kind + `","object":`
		if bytes.HasPrefix(line, []byte(prefix)) && bytes.HasSuffix(line, []byte("}}")) {
			return kind, line[len(prefix) : len(line)-1], nil
		}
	}
	var e lineEvent
	if err := json.Unmarshal(line, &e); err != nil {
		return "", nil, fmt.Errorf("reading an event: %w", err)
	}
	return e.Type, e.Object, checkKind(e.Type, e.Object)
}

// checkKind returns an error for an event that is about no object.
func checkKind(kind string, object []byte) error {
	switch {
	case kind == Failed:
		return statusError(object)
	case !slices.Contains(kinds, kind):
		return fmt.Errorf("reading an event: its type is %q", kind)
	}
	return nil
}

// endsInitial reports whether an event is the bookmark behind the initial events. Bookmarks
// have no names in which a cluster's user could write that.
func endsInitial(kind string, object []byte) bool {
	return kind == Bookmark && bytes.Contains(object, []byte(metav1.InitialEventsAnnotationKey))
}

// statusError reads the object of an ERROR event.
func statusError(object []byte) error {
	status, err := merge.ReadStatus(object)
	if err != nil {
		return fmt.Errorf("reading an ERROR event: %w", err)
	}
	if status.Code == http.StatusGone {
		return ErrExpired
	}
	return fmt.Errorf("the cluster ended the watch: %s", status.Message)
}

// ErrExpired says that a member does not know the version any more.
var ErrExpired = errors.New("the cluster does not know the version any more")
