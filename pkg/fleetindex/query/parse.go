package query

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Bounds of a query.
const (
	// MaxQuery is how many bytes a query has.
	MaxQuery = 4 << 10
	maxTerms = 32
	// maxValues bounds the values of all terms together, and maxWords their words.
	maxValues, maxWords = 64, 64
)

// Key is what a term looks at.
type Key string

// The keys. Word looks at all texts.
const (
	Word      Key = ""
	Kind      Key = "kind"
	Status    Key = "status"
	Cluster   Key = "cluster"
	Namespace Key = "namespace"
	Name      Key = "name"
	Node      Key = "node"
	Label     Key = "label"
	Image     Key = "image"
)

// keys are those that can be written.
var keys = []Key{Kind, Status, Cluster, Namespace, Name, Node, Label, Image}

// Counted are the keys by which rows can be counted.
var Counted = []Key{Cluster, Kind, Namespace, Status, Node}

// Term is a part of a query.
type Term struct {
	Key Key
	// Not means that none of the values may match.
	Not bool
	// Values are those of which one must match. Those of Word, Label and Image are one.
	Values []Value
}

// Query is a search. All of its terms must match; without any, everything does.
type Query []Term

// Of returns the terms of a key.
func (q Query) Of(key Key) Query {
	return slices.DeleteFunc(slices.Clone(q), func(t Term) bool { return t.Key != key })
}

// Match reports whether a text with the key matches all terms.
func (q Query) Match(key Key, texts ...string) bool {
	for _, term := range q.Of(key) {
		found := slices.ContainsFunc(term.Values, func(v Value) bool { return slices.ContainsFunc(texts, v.Match) })
		if found == term.Not {
			return false
		}
	}
	return true
}

// String returns the query in its one form.
func (q Query) String() string {
	terms := make([]string, len(q))
	for i, t := range q {
		values := make([]string, len(t.Values))
		for j, v := range t.Values {
			values[j] = string(v)
		}
		text := strings.Join(values, ",")
		if strings.ContainsFunc(text, unicode.IsSpace) || t.Key == Word && strings.Contains(text, ":") || strings.HasPrefix(text, "!") && !t.Not {
			text = `"` + text + `"`
		}
		if t.Not {
			text = "!" + text
		}
		if t.Key != Word {
			text = string(t.Key) + ":" + text
		}
		terms[i] = text
	}
	return strings.Join(terms, " ")
}

// Parse parses a query.
func Parse(text string) (Query, error) {
	if len(text) > MaxQuery {
		return nil, fmt.Errorf("the query has %d bytes, and may have %d", len(text), MaxQuery)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) }) {
		return nil, fmt.Errorf("the query %q is no text", text)
	}
	var q Query
	values, words := 0, 0
	for rest := strings.TrimSpace(text); rest != ""; rest = strings.TrimSpace(rest) {
		term, after, err := parseTerm(rest)
		if err != nil {
			return nil, err
		}
		q, rest = append(q, term), after
		values += len(term.Values)
		words += len(term.Words())
	}
	if len(q) > maxTerms || values > maxValues || words > maxWords {
		return nil, fmt.Errorf("the query has %d terms, %d values and %d words, and may have %d, %d and %d", len(q), values, words, maxTerms, maxValues, maxWords)
	}
	return q, nil
}

// parseTerm parses the first term of a text and returns the text after it.
func parseTerm(text string) (Term, string, error) {
	var term Term
	if end := strings.IndexFunc(text, func(r rune) bool { return r == ':' || r == '"' || unicode.IsSpace(r) }); end >= 0 && text[end] == ':' {
		term.Key = Key(strings.ToLower(text[:end]))
		if !slices.Contains(keys, term.Key) {
			return term, "", fmt.Errorf("%q is no key of a search; use one of %v, or put the word in quotes", text[:end], keys)
		}
		text = text[end+1:]
		text, term.Not = strings.CutPrefix(text, "!")
	}
	if term.Key == Word && strings.HasPrefix(text, "!") {
		return term, "", errors.New("a word has no !, which is for kind, status, cluster, namespace, name and node: put a word that begins with one in quotes")
	}
	value, rest, err := parseValue(text)
	if err != nil {
		return term, "", err
	}
	switch {
	case term.isText():
		term.Values = []Value{Value(value)}
		return term, rest, term.checkText()
	case value == "" && term.Key != Status && term.Key != Node && term.Key != Namespace:
		return term, "", fmt.Errorf("%s: needs a value", term.Key)
	}
	for part := range strings.SplitSeq(value, ",") {
		if without, isNot := strings.CutPrefix(part, "!"); isNot && len(term.Values) > 0 {
			return term, "", fmt.Errorf("%s: has %s behind a comma, and ! is for all values: write %s:!%s as a term of its own, or, for none of some values, one ! before the first", term.Key, part, term.Key, without)
		}
		term.Values = append(term.Values, Value(part))
	}
	return term, rest, nil
}

// parseValue parses a value, which ends at a space unless it is in quotes.
func parseValue(text string) (value, rest string, err error) {
	if quoted, ok := strings.CutPrefix(text, `"`); ok {
		value, rest, ok = strings.Cut(quoted, `"`)
		if !ok {
			return "", "", fmt.Errorf("the quotes of %q do not end", quoted)
		}
		if rest != "" && !unicode.IsSpace([]rune(rest)[0]) {
			return "", "", fmt.Errorf("a space is missing after the quotes of %q", value)
		}
		return value, rest, nil
	}
	end := strings.IndexFunc(text, unicode.IsSpace)
	if end < 0 {
		end = len(text)
	}
	if strings.Contains(text[:end], `"`) {
		return "", "", fmt.Errorf("the quotes in %s do not begin a value", strconv.Quote(text[:end]))
	}
	return text[:end], text[end:], nil
}

// isText reports whether the term's value is words and no text to compare as a whole.
func (t Term) isText() bool { return t.Key == Word || t.Key == Label || t.Key == Image }

// Words returns the words in sequence that a text must have to match, and whether the last one is only
// the beginning of one. Terms that compare whole texts have none.
func (t Term) Words() []string {
	if !t.isText() {
		return nil
	}
	return Words(string(t.Values[0]))
}

// IsPrefix reports whether the last of the term's words is only the beginning of one.
func (t Term) IsPrefix() bool { return strings.HasSuffix(string(t.Values[0]), "*") }

// checkText refuses a term that cannot be searched by words.
func (t Term) checkText() error {
	value := string(t.Values[0])
	switch {
	case t.Not:
		return fmt.Errorf("%s:!%s cannot be searched; ! is for kind, status, cluster, namespace, name and node", t.Key, value)
	case len(t.Words()) == 0:
		return fmt.Errorf("%q has no letter or digit to search for", value)
	case strings.ContainsAny(strings.TrimSuffix(value, "*"), "*?"):
		return fmt.Errorf("%q has a pattern that is not at the end; words are found in the middle of texts without one", value)
	case t.IsPrefix() && !endsInWord(strings.TrimSuffix(value, "*")):
		return fmt.Errorf("%q has no letter or digit before the *", value)
	case t.Key == Label && strings.HasPrefix(value, "="):
		return fmt.Errorf("label:%s names no label", value)
	}
	return nil
}

func endsInWord(text string) bool {
	r, _ := utf8.DecodeLastRuneInString(text)
	return len(Words(string(r))) > 0
}
