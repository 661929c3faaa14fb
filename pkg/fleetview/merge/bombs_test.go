package merge

import (
	"runtime"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestBombs has documents of some MiB whose form would make a decoder take a hundred times as
// much. They are refused before that.
func TestBombs(t *testing.T) {
	const size = 4 << 20
	array := func(each string) []byte {
		return []byte("[" + strings.Repeat(each+",", size/(len(each)+1)) + each + "]")
	}
	of := func(kind string) metav1.TypeMeta { return metav1.TypeMeta{APIVersion: "v1", Kind: kind} }
	status := []byte(`{"kind":"Status","details":{"causes":` + string(array("{}")) + `}}`)
	empty := func(number protowire.Number) []byte {
		return []byte(strings.Repeat(string(protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), nil)), size/2))
	}
	details := protowire.AppendBytes(protowire.AppendTag(nil, 5, protowire.BytesType), empty(4))
	for name, read := range map[string]func() error{
		"columns of a Table":   func() error { _, err := new(Table).Add(array("{}")); return err },
		"a Status":             func() error { _, err := ReadStatus(status); return err },
		"a Status in protobuf": func() error { _, err := ReadStatus(AppendProtobufDocument(nil, of("Status"), details)); return err },
		"a list in protobuf": func() error {
			_, _, err := ReadProtobufList(AppendProtobufDocument(nil, of("PodList"), empty(listItems)))
			return err
		},
		"a JSON patch": func() error { _, err := new(Restorer).AppendJSONPatch(nil, array("{}")); return err },
		"YAML":         func() error { _, err := fromYAML([]byte(strings.Repeat("-\n", size/2))); return err },
		"flow of YAML": func() error { _, err := fromYAML([]byte("a: " + string(array("x")))); return err },
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := read()
		runtime.ReadMemStats(&after)
		if grown := (after.TotalAlloc - before.TotalAlloc) >> 20; err == nil || grown > 40 {
			t.Errorf("%s: got error %v and %d MiB allocated, want an error and no more than 40", name, err, grown)
		}
	}
}
