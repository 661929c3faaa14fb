package watch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
)

// wants is how a request to a cluster wants its answer.
type wants struct{ accept, includeObject string }

func (w wants) as(kind string) bool { return strings.Contains(w.accept, ";as="+kind+";") }

// transformed returns an object or a list as kube-apiserver answers with it. The headers of
// a Table are left out of all events but the first.
func (c *cluster) transformed(w wants, object runtime.Object, headers bool) runtime.Object {
	switch list, _ := object.(*corev1.ConfigMapList); {
	case w.as("Table"):
		return c.table(w, object, headers)
	case w.as("PartialObjectMetadataList"):
		partial := &metav1.PartialObjectMetadataList{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadataList"}, ListMeta: list.ListMeta}
		for i := range list.Items {
			partial.Items = append(partial.Items, *partialOf(&list.Items[i]))
		}
		return partial
	case w.as("PartialObjectMetadata"):
		return partialOf(object.(*corev1.ConfigMap))
	}
	return object
}

func partialOf(object *corev1.ConfigMap) *metav1.PartialObjectMetadata {
	partial := meta.AsPartialObjectMetadata(object)
	partial.TypeMeta = metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"}
	return partial
}

func (c *cluster) table(w wants, object runtime.Object, headers bool) *metav1.Table {
	table := &metav1.Table{TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "Table"}}
	if headers {
		table.ColumnDefinitions = append([]metav1.TableColumnDefinition{{Name: "Name", Type: "string", Format: "name"}}, c.columns...)
	}
	var objects []corev1.ConfigMap
	switch o := object.(type) {
	case *corev1.ConfigMapList:
		table.ListMeta, objects = o.ListMeta, o.Items
	case *corev1.ConfigMap:
		table.ResourceVersion, objects = o.ResourceVersion, []corev1.ConfigMap{*o}
	}
	for _, object := range objects {
		row := metav1.TableRow{Cells: []any{object.Name}}
		for _, column := range c.columns {
			row.Cells = append(row.Cells, column.Name+" of "+object.Name)
		}
		if w.includeObject == "Object" {
			object.TypeMeta = configMap
			row.Object.Object = &object
		} else {
			row.Object.Object = partialOf(&object)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}

var configMap = metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}

// kindsOfTest are those of the objects in tests.
var kindsOfTest = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, metav1.AddMetaToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return scheme
}()

func encoded(object runtime.Object) []byte {
	text, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return text
}

// framed is an event as a watch has it.
func framed(kind string, object runtime.Object) []byte {
	return fmt.Appendf(nil, "{\"type\":%q,\"object\":%s}\n", kind, encoded(object))
}

// decoded reads events as client-go does.
func decoded(t *testing.T, body []byte) []metav1.WatchEvent {
	serializer := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, kindsOfTest, kindsOfTest, jsonserializer.SerializerOptions{})
	decoder := streaming.NewDecoder(jsonserializer.Framer.NewFrameReader(io.NopCloser(bytes.NewReader(body))), serializer)
	var events []metav1.WatchEvent
	for {
		var e metav1.WatchEvent
		if _, _, err := decoder.Decode(nil, &e); err == io.EOF {
			return events
		} else if err != nil {
			t.Fatalf("reading events: %v", err)
		}
		var err error
		if e.Object.Object, _, err = serializer.Decode(e.Object.Raw, nil, nil); err != nil {
			t.Fatalf("reading the object %q: %v", e.Object.Raw, err)
		}
		events = append(events, e)
	}
}
