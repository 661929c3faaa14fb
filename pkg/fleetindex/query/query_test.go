package query

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Query{
		"":        nil,
		" log4j ": {{Values: []Value{"log4j"}}},
		"kind:pod status:CrashLoopBackOff,Error cluster:eu-*": {
			{Key: Kind, Values: []Value{"pod"}}, {Key: Status, Values: []Value{"CrashLoopBackOff", "Error"}}, {Key: Cluster, Values: []Value{"eu-*"}},
		},
		"namespace:!kube-*,default":    {{Key: Namespace, Not: true, Values: []Value{"kube-*", "default"}}},
		"image:nginx:1.25 label:a/b=c": {{Key: Image, Values: []Value{"nginx:1.25"}}, {Key: Label, Values: []Value{"a/b=c"}}},
		"\"two words\"\t\"nginx:1\"":   {{Values: []Value{"two words"}}, {Values: []Value{"nginx:1"}}},
		"STATUS:\"Not Ready\"":         {{Key: Status, Values: []Value{"Not Ready"}}},
		"status:":                      {{Key: Status, Values: []Value{""}}},
		"crash*":                       {{Values: []Value{"crash*"}}},
		"status:\"!x\"":                {{Key: Status, Values: []Value{"!x"}}},
	} {
		got, err := Parse(text)
		if err != nil || !cmp.Equal(got, want) {
			t.Errorf("%q: %v %s", text, err, cmp.Diff(want, got))
			continue
		}
		if again, err := Parse(got.String()); err != nil || !cmp.Equal(again, want) {
			t.Errorf("%q is written as %q, which is %v, %v", text, got.String(), again, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"nginx:1.25":                          "is no key of a search",
		"kind:":                               "needs a value",
		"\"a":                                 "do not end",
		"\"a\"b":                              "a space is missing",
		"a\"b":                                "do not begin a value",
		"***":                                 "no letter or digit",
		"*log":                                "not at the end",
		"image:a?b":                           "not at the end",
		"a.*":                                 "before the *",
		"label:=web":                          "names no label",
		"label:!app":                          "cannot be searched",
		"web !kube":                           "a word has no !",
		"name:web,!x":                         "write name:!x as a term of its own",
		"name:!web,!x":                        "one ! before the first",
		"a\x00":                               "is no text",
		"\xff":                                "is no text",
		strings.Repeat("a", MaxQuery+1):       "bytes",
		strings.Repeat("a ", maxTerms+1):      "33 terms",
		"kind:" + strings.Repeat("a,", 64):    "65 values",
		"\"" + strings.Repeat("a ", 65) + `"`: "65 words",
	} {
		if q, err := Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: got %v, %v, want %q", text, q, err, want)
		}
	}
}

func TestMatch(t *testing.T) {
	for _, c := range []struct {
		query, text string
		want        bool
	}{
		{"name:web", "web", true}, {"name:WEB", "web", true}, {"name:web", "web-0", false},
		{"name:web-*", "web-0", true}, {"name:*-?", "web-10", false}, {"name:*-??", "web-10", true},
		{"name:a*b*c", "a-b-b-c", true}, {"name:a*b*c", "a-b-b", false}, {"name:*", "", true},
		{"name:!web", "web", false}, {"name:!web,db", "db", false}, {"name:!web", "db", true},
		{"name:w* name:!web", "work", true}, {"name:w* name:!web", "web", false}, {"kind:x", "anything", true},
	} {
		q, err := Parse(c.query)
		if err != nil {
			t.Fatal(err)
		}
		if got := q.Match(Name, c.text); got != c.want {
			t.Errorf("%s for %q: got %v", c.query, c.text, got)
		}
	}
}

// TestPatternsEnd has a pattern for which backtracking would take longer than anybody waits.
func TestPatternsEnd(t *testing.T) {
	if Value(strings.Repeat("a*", 1000) + "b").Match(strings.Repeat("a", 2000)) {
		t.Error("it matches")
	}
}

func TestLike(t *testing.T) {
	if got, want := Value(`A_b%*?\`).Like(), `a\_b\%%_\\`; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		"":                                   nil,
		"registry/Log4j:2.0":                 {"registry", "log4j", "2", "0"},
		"CrashLoopBackOff (5m ago)":          {"crashloopbackoff", "5m", "ago"},
		"größe ١٢":                           {"größe", "١٢"},
		"a\xffb'|\"":                         {"a", "b"},
		strings.Repeat("a", 1000):            {strings.Repeat("a", maxWord)},
		strings.Repeat("a", maxWord-1) + "é": {strings.Repeat("a", maxWord-1)},
	} {
		if got := Words(text); !slices.Equal(got, want) {
			t.Errorf("%.40q: got %q, want %q", text, got, want)
		}
	}
}

// FuzzParse looks for queries that have two meanings, and for words that mean something to an engine.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"log4j", `"a b" kind:pod,x`, "status:!Running name:*-0", "image:nginx:1.25*", `"!a"`, `status:"!a"`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(q.String())
		if err != nil || fmt.Sprint([]Term(again)) != fmt.Sprint([]Term(q)) {
			t.Fatalf("%q is written as %q, which is %v, %v", text, q.String(), again, err)
		}
		for _, term := range q {
			for _, word := range term.Words() {
				if word == "" || len(word) > maxWord || strings.ContainsAny(word, " '\"*:|&!()<>\\\x00") {
					t.Fatalf("%q has the word %q", text, word)
				}
			}
			for _, value := range term.Values {
				value.Match(text)
			}
		}
	})
}
