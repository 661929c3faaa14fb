package encoding

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

const (
	AsTable    = "Table"
	AsMetadata = "PartialObjectMetadata"
)

// Media are the media types of one form.
type Media struct {
	// Watch and List are what members accept requests with.
	Watch, List string
	// IncludeObject is the parameter with which members are asked.
	IncludeObject string
	// Of is what the objects are, if that is known before any was seen.
	Of metav1.TypeMeta
	// Table says that objects are rows, which may be about objects in any form.
	Table bool
}

// Codec is how the objects of one stream are read and written.
type Codec interface {
	Media() Media
	// Source makes what reads the answers of one member.
	Source(rewriter *merge.Rewriter) Source
	// AppendOwn appends an event that the stream makes itself. The object is the Status of
	// an ERROR, or for a bookmark a PartialObjectMetadata that says what the objects are.
	// The caller holds the stream.
	AppendOwn(dst []byte, kind string, object runtime.Object) ([]byte, error)
}

// Source reads the answers of one member, and writes its objects as those of the view.
type Source interface {
	// Events returns what reads the next event of a watch. Its error is io.EOF if the
	// stream ends between events. An event is valid until the next one is read.
	Events(body io.Reader) func() (Event, error)
	// List reads one page of a list. The events that visit gets have no kind.
	List(body io.Reader, visit func(Event) error) (merge.ListMeta, error)
	// Append appends an event. The caller holds the stream.
	Append(dst []byte, e Event) ([]byte, error)
}

// Event is one event of a member, or an item of a list.
type Event struct {
	Kind string
	Key  merge.Key
	// item is a JSON object, or the row of a Table. There is none in a DELETED for an object of
	// which the key is all that is left.
	item merge.Item
	// of is the beginning of an object with what it is, if an item of a list does not say it.
	of []byte
	// Initial says that a bookmark is the one behind the initial events.
	Initial bool
	// columns are the columnDefinitions of a Table, if the member has said them.
	columns []byte
}

// partial is all that is known of an object.
func partial(key merge.Key) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: key.APIVersion, Kind: key.Kind}}
	object.Namespace, object.Name, object.UID, object.ResourceVersion = key.Namespace, key.Name, types.UID(key.UID), key.Version
	return object
}
