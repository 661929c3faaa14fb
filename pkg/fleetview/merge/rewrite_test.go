package merge

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	testAnnotation    = "clusterproxy.open-cluster-management.io/cluster"
	karmadaAnnotation = "resource.karmada.io/cached-from-cluster"
	testMemberPrefix  = "9"
)

func testRewriter(qualified bool) *Rewriter {
	return &Rewriter{
		Cluster:     "edge-7",
		Annotations: []string{testAnnotation, karmadaAnnotation},
		Qualified:   qualified,
		Version:     func(member string) string { return testMemberPrefix + member },
	}
}

func TestRewriteJSON(t *testing.T) {
	const ours = `"` + testAnnotation + `":"edge-7","` + karmadaAnnotation + `":"edge-7"`
	tests := map[string]struct {
		object, want string
		qualified    bool
	}{
		"plain": {
			object: `{"kind":"Pod","metadata":{"name":"a","resourceVersion":"12","annotations":{"x":"y"}},"spec":{}}`,
			want:   `{"kind":"Pod","metadata":{"name":"a","resourceVersion":"912","annotations":{` + ours + `,"x":"y"}},"spec":{}}`,
		},
		"qualified": {
			object:    `{"metadata":{"name":"\u0061","uid":"u"}}`,
			want:      `{"metadata":{"name":"\u0061@edge-7","uid":"u","annotations":{` + ours + `}}}`,
			qualified: true,
		},
		"no name":           {object: `{"metadata":{"name":""}}`, want: `{"metadata":{"name":"","annotations":{` + ours + `}}}`, qualified: true},
		"no metadata":       {object: ` {"a":1}`, want: ` {"metadata":{"annotations":{` + ours + `}},"a":1}`},
		"nothing":           {object: `{ } `, want: `{"metadata":{"annotations":{` + ours + `}} } `},
		"null metadata":     {object: `{"metadata":null}`, want: `{"metadata":{"annotations":{` + ours + `}}}`},
		"null annotations":  {object: `{"metadata":{"annotations":null}}`, want: `{"metadata":{"annotations":{` + ours + `}}}`},
		"no version":        {object: `{"metadata":{"resourceVersion":""}}`, want: `{"metadata":{"resourceVersion":"","annotations":{` + ours + `}}}`},
		"claimed":           {object: `{"metadata":{"annotations":{"` + testAnnotation + `":"x","a":"b","` + testAnnotation + `":"y"}}}`, want: `{"metadata":{"annotations":{` + ours + `,"a":"b"}}}`},
		"claimed, escaped":  {object: `{"metadata":{"annotations":{"\u0063` + testAnnotation[1:] + `":"x"}}}`, want: `{"metadata":{"annotations":{` + ours + `}}}`},
		"keys with escapes": {object: `{"met\u0061data":{"annot\u0061tions":{}}}`, want: `{"met\u0061data":{"annot\u0061tions":{` + ours + `}}}`},
		"other case": {
			object: `{"Metadata":{"annotations":{}},"metadata":{"Annotations":1,"annotation\u017f":2,"name":"a"},"METADATA":1}`,
			want:   `{"metadata":{"name":"a","annotations":{` + ours + `}}}`,
		},
		"metadata elsewhere": {
			object: `{"spec":{"metadata":{"name":"\"metadata\":{"}},"metadata":{}}`,
			want:   `{"spec":{"metadata":{"name":"\"metadata\":{"}},"metadata":{"annotations":{` + ours + `}}}`,
		},
		"whitespace": {
			object: "{\n \"metadata\" : { \"name\" : \"a\" , \"annotations\" : { \"x\" : \"y\" } } ,\n \"b\" : [ ] }\n",
			want:   "{\n \"metadata\" : {\"name\" : \"a\",\"annotations\" : {" + ours + ",\"x\" : \"y\"}} ,\n \"b\" : [ ] }\n",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := testRewriter(test.qualified).AppendJSON([]byte("before"), []byte(test.object))
			if err != nil {
				t.Fatalf("rewriting %s: %v", test.object, err)
			}
			if diff := cmp.Diff("before"+test.want, string(got)); diff != "" {
				t.Errorf("rewriting %s (-want +got):\n%s", test.object, diff)
			}
		})
	}
}

func TestRewriteJSONRefuses(t *testing.T) {
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	for _, object := range []string{
		``, `null`, `[]`, `{`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,}`, `{,}`, `{"a":1}{`, `{"a":[}`, `{"a":{]}`, `{"a":"` + "\n" + `"}`, `{"a":"\x"}`, `{"a":"\u00g0"}`,
		`{"a":01}`, `{"a":1.}`, `{"a":-}`, `{"a":1e}`, `{"a":tru}`, `{"a":nulL}`, `{"a":` + strings.Repeat("1", maxNumber+1) + `}`, `{"a":` + deep + `}`,
		`{"metadata":{},"metadata":{}}`, `{"metadata":{},"metadat\u0061":{}}`, `{"metadata":{"annotations":{},"annotations":{}}}`,
		`{"metadata":{"name":"a","name":"b"}}`, `{"metadata":{"resourceVersion":"1","resourceVersion":"2"}}`,
		`{"metadata":1}`, `{"metadata":[]}`, `{"metadata":{"name":1}}`, `{"metadata":{"resourceVersion":1}}`, `{"metadata":{"annotations":[]}}`,
		`{"metadata":nul}`, `{"metadata":{"annotations":nul}}`,
	} {
		got, err := testRewriter(true).AppendJSON([]byte("before"), []byte(object))
		if err == nil {
			t.Errorf("rewriting %.80s: got %s, want an error", object, got)
		}
		if string(got) != "before" {
			t.Errorf("rewriting %.80s: it left %.80q at the end, want nothing", object, got)
		}
	}
}

// decodedJSON decodes an object as clients do that take the last of several equal keys.
func decodedJSON(t *testing.T, object []byte) (m map[string]any, ok bool) {
	t.Helper()
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	if !json.Valid(object) || decoder.Decode(&m) != nil || m == nil {
		return nil, false
	}
	return m, true
}

// rewritten makes the Rewriter's change to a decoded object.
func rewritten(object map[string]any, w *Rewriter) {
	dropTwins(object, "metadata")
	metadata, _ := object["metadata"].(map[string]any)
	if metadata == nil {
		metadata = map[string]any{}
	}
	object["metadata"] = metadata
	dropTwins(metadata, "annotations", "name", "resourceVersion")
	annotations, _ := metadata["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
	}
	metadata["annotations"] = annotations
	for _, name := range w.Annotations {
		annotations[name] = w.Cluster
	}
	if name, _ := metadata["name"].(string); name != "" && w.Qualified {
		metadata["name"] = name + "@" + w.Cluster
	}
	if version, _ := metadata["resourceVersion"].(string); version != "" {
		metadata["resourceVersion"] = w.Version(version)
	}
}

func dropTwins(object map[string]any, names ...string) {
	for key := range object {
		for _, name := range names {
			if key != name && strings.EqualFold(key, name) {
				delete(object, key)
			}
		}
	}
}

func FuzzRewriteJSON(f *testing.F) {
	for _, seed := range []string{
		`{"metadata":{"name":"a","resourceVersion":"1","annotations":{"a":"b"}},"x":[1,-2.5e+3,true,null,"\u00e4\n"]}`,
		`{"Metadata":{},"metadata":{"Name":"x","annotations":{"` + testAnnotation + `":"x"}},"a":{"b":[{},[]]}}`,
		`{"a":"0123456789abcdef\"0123456789"}`, `{"metadata":null}`, ` { } `,
	} {
		f.Add([]byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, object []byte, qualified bool) {
		w := testRewriter(qualified)
		got, err := w.AppendJSON(nil, object)
		want, ok := decodedJSON(t, object)
		if err == nil {
			if !ok {
				t.Fatalf("rewriting %q: got %q, want an error, as of encoding/json", object, got)
			}
			rewritten(want, w)
			m, ok := decodedJSON(t, got)
			if diff := cmp.Diff(want, m); !ok || diff != "" {
				t.Fatalf("rewriting %q gave %q (-want +got):\n%s", object, got, diff)
			}
			return
		}
		if !ok {
			return
		}
		// Encoding again removes what is refused in spite of being valid: equal keys.
		plain, err := json.Marshal(map[string]any{"metadata": map[string]any{}, "all": want})
		if err != nil || len(plain) > maxNumber {
			return
		}
		if _, err := w.AppendJSON(nil, plain); err != nil {
			t.Fatalf("rewriting %q: %v, want no error, as of encoding/json", plain, err)
		}
	})
}
