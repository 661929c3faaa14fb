package watch

import (
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// Form is how a client wants objects, as it says in its Accept header.
type Form struct {
	// As is what the objects are changed into: empty, Table or PartialObjectMetadata.
	As string
	// Version is the version of API group meta.k8s.io in which As is wanted.
	Version string
	// IncludeObject is the parameter of that name, of requests for Tables.
	IncludeObject string
	// Protobuf is not set for Tables, which have JSON only.
	Protobuf bool
}

const (
	asTable    = "Table"
	asMetadata = "PartialObjectMetadata"

	jsonType     = "application/json"
	protobufType = "application/vnd.kubernetes.protobuf"
)

// media are the media types of one form.
type media struct {
	// watch and list are what members accept requests with, and content is that of the
	// client's answer.
	watch, list, content string
	// includeObject is the parameter with which members are asked.
	includeObject string
	// of is what the objects are, if that is known before any was seen.
	of metav1.TypeMeta
}

// form is how the events of one stream are written.
type form interface {
	media() media
	// source makes what reads the answers of one member.
	source(rewriter *merge.Rewriter) source
	// appendOwn appends an event that the stream makes itself. The object is the Status of
	// an ERROR, or for a bookmark a PartialObjectMetadata that says what the objects are.
	// The caller holds the stream.
	appendOwn(dst []byte, kind string, object runtime.Object) ([]byte, error)
}

// source reads the answers of one member, and writes its objects as those of the view.
type source interface {
	// events returns what reads the next event of a watch. Its error is io.EOF if the
	// stream ends between events. An event is valid until the next one is read.
	events(body io.Reader) func() (event, error)
	// list reads one page of a list. The events that visit gets have no kind.
	list(body io.Reader, visit func(event) error) (merge.ListMeta, error)
	// append appends an event. The caller holds the stream.
	append(dst []byte, e event) ([]byte, error)
}

// event is one event of a member, or an item of a list.
type event struct {
	kind string
	key  merge.Key
	// item is a JSON object, or the row of a Table, and document an object in protobuf. There
	// is neither in a DELETED for an object of which the key is all that is left.
	item     merge.Item
	document []byte
	// of is the beginning of an object with what it is, if an item of a list does not say it.
	of []byte
	// initial says that a bookmark is the one behind the initial events.
	initial bool
	// columns are the columnDefinitions of a Table, if the member has said them.
	columns []byte
}

// newForm makes the form of one stream.
func (f Form) newForm() form {
	switch {
	case f.As == asTable:
		return &tableForm{wants: f, unsent: true}
	case f.Protobuf:
		return protobufForm{f}
	}
	return jsonForm{f}
}

func (f Form) media() media {
	m := media{watch: jsonType, content: jsonType}
	if f.Protobuf {
		m = media{watch: protobufType, content: protobufType + ";stream=watch"}
	}
	m.list = m.watch
	if f.As == "" {
		return m
	}
	m.of = metav1.TypeMeta{APIVersion: metav1.GroupName + "/" + f.Version, Kind: asMetadata}
	suffix := fmt.Sprintf(";g=%s;v=%s", metav1.GroupName, f.Version)
	m.watch += ";as=" + f.As + suffix
	m.list += ";as=" + f.As
	if f.As == asMetadata {
		m.list += "List"
	}
	m.list += suffix
	if m.includeObject = f.IncludeObject; f.withoutObjects() {
		m.includeObject = string(metav1.IncludeMetadata) // it says which object a row is about
	}
	return m
}

func (f Form) withoutObjects() bool { return f.IncludeObject == string(metav1.IncludeNone) }

// partial is all that is known of an object.
func partial(key merge.Key) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: key.APIVersion, Kind: key.Kind}}
	object.Namespace, object.Name, object.UID, object.ResourceVersion = key.Namespace, key.Name, types.UID(key.UID), key.Version
	return object
}
