package merge

import (
	"runtime"
	"strings"
	"testing"
)

// TestBombs has documents of some MiB whose form would make a decoder take a hundred times as
// much. They are refused before that.
func TestBombs(t *testing.T) {
	const size = 4 << 20
	array := func(each string) []byte {
		return []byte("[" + strings.Repeat(each+",", size/(len(each)+1)) + each + "]")
	}
	status := []byte(`{"kind":"Status","details":{"causes":` + string(array("{}")) + `}}`)
	for name, read := range map[string]func() error{
		"columns of a Table": func() error { _, err := new(Table).Add(array("{}")); return err },
		"a Status":           func() error { _, err := ReadStatus(status); return err },
		"a JSON patch":       func() error { _, err := new(Restorer).AppendJSONPatch(nil, array("{}")); return err },
		"YAML":               func() error { _, err := fromYAML([]byte(strings.Repeat("-\n", size/2))); return err },
		"flow of YAML":       func() error { _, err := fromYAML([]byte("a: " + string(array("x")))); return err },
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
