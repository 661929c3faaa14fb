package catalog

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestOpenAPIIndex(t *testing.T) {
	hashes, err := ParseOpenAPIIndex([]byte(`{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=AB"},
		"version":{"serverRelativeURL":"/openapi/v3/version"},".well-known/openid-configuration":{},"../etc":{},"a//b":{},"%":{}}}`), &Budget{})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"apis/apps/v1": "AB", "version": "", ".well-known/openid-configuration": ""}
	if diff := cmp.Diff(want, hashes); diff != "" {
		t.Errorf("hashes (-want +got):\n%s", diff)
	}
	body, err := AppendOpenAPIIndex(nil, "/@all", map[string]string{"apis/apps/v1": "AB", "version": ""})
	if err != nil {
		t.Fatal(err)
	}
	wantBody := `{"paths":{"apis/apps/v1":{"serverRelativeURL":"/@all/openapi/v3/apis/apps/v1?hash=AB"},"version":{"serverRelativeURL":"/@all/openapi/v3/version"}}}`
	if diff := cmp.Diff(wantBody, string(body)); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
	}
}

func TestGroupVersionOf(t *testing.T) {
	for path, want := range map[string]struct {
		GV schema.GroupVersion
		OK bool
	}{
		"api/v1":                   {schema.GroupVersion{Version: "v1"}, true},
		"/api/v1/namespaces/{n}/x": {schema.GroupVersion{Version: "v1"}, true},
		"/apis/apps/v1/":           {schema.GroupVersion{Group: "apps", Version: "v1"}, true},
		"/apis/apps":               {schema.GroupVersion{Group: "apps"}, true},
		"/apis":                    {schema.GroupVersion{}, true},
		"/version/":                {},
		"":                         {},
	} {
		gv, ok := GroupVersionOf(path)
		if gv != want.GV || ok != want.OK {
			t.Errorf("GroupVersionOf(%q) = %v, %v, want %v, %v", path, gv, ok, want.GV, want.OK)
		}
	}
}

const (
	newSwagger = `{"swagger":"2.0","info":{"title":"new"},"paths":{"/api/v1/pods":{"$ref":"#/definitions/Pod"},"/apis/apps/v1/x":{},"/version/":{}},
		"definitions":{"Pod":{"is":"new"}}}`
	oldSwagger = `{"swagger":"2.0","info":{"title":"old"},"paths":{"/api/v1/pods":{"is":"old"},"/apis/zoo/v1/cats":{"get":[{"schema":{"$ref":"#/definitions/Cat"}}]},
		"/apis/ant/v1/hills":{"$ref":"#/definitions/Hill"}},
		"definitions":{"Pod":{"is":"old"},"Cat":{"eats":{"$ref":"#/definitions/Mouse"},"knows":{"$ref":"#/definitions/Pod"}},"Mouse":{"fears":{"$ref":"#/definitions/Cat"}},"Hill":{}}}`
)

func TestSwagger(t *testing.T) {
	s, err := ParseSwagger([]byte(newSwagger), &Budget{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := ParseSwagger([]byte(oldSwagger), &Budget{})
	if err != nil {
		t.Fatal(err)
	}
	s.Filter(func(gv schema.GroupVersion) bool { return gv.Group != "apps" })
	s.Add(other, func(gv schema.GroupVersion) bool { return gv.Group != "ant" })
	body, err := s.JSON()
	if err != nil {
		t.Fatal(err)
	}
	want := `{"swagger":"2.0","info":{"title":"new"},"paths":{"/api/v1/pods":{"$ref":"#/definitions/Pod"},"/version/":{},
		"/apis/zoo/v1/cats":{"get":[{"schema":{"$ref":"#/definitions/Cat"}}]}},
		"definitions":{"Pod":{"is":"new"},"Cat":{"eats":{"$ref":"#/definitions/Mouse"},"knows":{"$ref":"#/definitions/Pod"}},"Mouse":{"fears":{"$ref":"#/definitions/Cat"}}}}`
	if diff := cmp.Diff(decoded(t, want), decoded(t, string(body))); diff != "" {
		t.Errorf("document (-want +got):\n%s", diff)
	}
}

func decoded(t *testing.T, s string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("decoding %q: %v", s, err)
	}
	return v
}

func FuzzSwagger(f *testing.F) {
	f.Add(newSwagger, oldSwagger)
	f.Add(`{"swagger":"2.0"}`, `{"swagger":"2.0","paths":null,"definitions":{}}`)
	f.Fuzz(func(t *testing.T, a, b string) {
		s, err := ParseSwagger([]byte(a), &Budget{})
		if err != nil {
			return
		}
		if other, err := ParseSwagger([]byte(b), &Budget{}); err == nil {
			s.Add(other, func(schema.GroupVersion) bool { return true })
		}
		body, err := s.JSON()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ParseSwagger(body, &Budget{}); err != nil {
			t.Errorf("reading what was written: %v", err)
		}
	})
}

func FuzzOpenAPIIndex(f *testing.F) {
	f.Add(`{"paths":{"apis/apps/v1":{"serverRelativeURL":"/openapi/v3/apis/apps/v1?hash=AB"}}}`)
	f.Fuzz(func(t *testing.T, body string) {
		hashes, err := ParseOpenAPIIndex([]byte(body), &Budget{})
		if err != nil {
			return
		}
		again, err := AppendOpenAPIIndex(nil, "/@all", hashes)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ParseOpenAPIIndex(again, &Budget{})
		if diff := cmp.Diff(hashes, got); diff != "" || err != nil {
			t.Errorf("read again: %v (-want +got):\n%s", err, diff)
		}
	})
}
