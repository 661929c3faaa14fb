package merge

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
)

// The limits of what one cluster says of itself. The largest clusters that are known have
// 5,000 CRDs in several versions; most have less than 1,000 resources in 100 groups.
const (
	maxGroups       = 2_000
	maxVersions     = 10_000
	maxResources    = 20_000
	maxSubresources = 64 // of one resource; pods have eleven
	maxWords        = 64 // verbs, short names, categories or accepted types of one resource
	maxDocuments    = 10_000
	maxPaths        = 100_000 // paths, and definitions, of OpenAPI v2
	maxText         = 1 << 10 // bytes of a name, a verb or a URL

	// maxHeld bounds the memory that the documents of one answer take once they are read.
	// 20,000 usual resources take 18 MiB.
	maxHeld = 32 << 20
)

// ErrLimit says that a document has more than any cluster needs.
var ErrLimit = errors.New("it is beyond what clusters have")

// Budget counts what the documents of one answer of a cluster have, all of them together.
// What is above a limit is an error before memory is taken for it.
type Budget struct {
	// Context ends the reading.
	Context context.Context
	// Held is about how many bytes what was read takes.
	Held int64

	groups, versions, resources int
}

// document reads a JSON document and keeps only what its caller asks for. It is as strict
// as encoding/json, and no value nests deeper than maxDepth. After an error nothing is read.
type document struct {
	data   []byte
	next   int
	err    error
	budget *Budget
	scan   scanner
	// texts has each text once: most resources have the same verbs.
	texts map[string]string
}

func open(data []byte, b *Budget) *document {
	return &document{data: data, budget: b, texts: map[string]string{}}
}

// read reads the document, an object. Only whitespace may follow it.
func (d *document) read(member func(key []byte)) error {
	if d.next = skipSpace(d.data, 0); d.next == len(d.data) {
		return errEnd
	}
	d.object(member)
	if d.err == nil && skipSpace(d.data, d.next) < len(d.data) {
		d.err = errTrailing
	}
	return d.err
}

func (d *document) fail(err error) {
	if d.err == nil {
		d.err = err
	}
}

// first is the first byte of the next value.
func (d *document) first() byte {
	if d.next >= len(d.data) {
		d.fail(errEnd)
		return 0
	}
	return d.data[d.next]
}

// absent reports whether nothing more is to be read of the value: it is null, or an error
// has come.
func (d *document) absent() bool {
	if d.err == nil && d.first() == 'n' {
		d.skip()
		return true
	}
	return d.err != nil
}

// object reads an object or null. member reads or skips the value of each key.
func (d *document) object(member func(key []byte)) {
	if d.absent() {
		return
	}
	m := walk(d.data, d.next)
	for m.more() {
		d.next = m.value
		member(m.key)
		if m.next = d.next; d.err != nil {
			return
		}
	}
	if d.next = m.next; m.err != nil {
		d.fail(m.err)
	}
}

// array reads an array or null. element reads or skips each value.
func (d *document) array(element func()) {
	if d.absent() {
		return
	}
	if c := d.first(); c != '[' {
		d.fail(syntax(c))
		return
	}
	d.next++
	for n := 0; ; n++ {
		d.next = skipSpace(d.data, d.next)
		switch c := d.first(); {
		case d.err != nil:
			return
		case c == ']':
			d.next++
			return
		case n > 0 && c != ',':
			d.fail(syntax(c))
			return
		case n > 0:
			d.next = skipSpace(d.data, d.next+1)
		}
		if element(); d.err != nil {
			return
		}
	}
}

// skip returns the next value as it is.
func (d *document) skip() []byte {
	if d.err != nil {
		return nil
	}
	d.scan.reset()
	start := d.next
	next, done, err := d.scan.scan(d.data, start)
	switch {
	case err != nil:
		d.fail(err)
	case !done:
		d.fail(errEnd)
	}
	d.next = next
	return d.data[start:next]
}

// text reads a string, or null for an empty one.
func (d *document) text() string {
	if d.absent() {
		return ""
	}
	if c := d.first(); c != '"' {
		d.fail(syntax(c))
		return ""
	}
	raw := d.skip()
	if d.err != nil {
		return ""
	}
	if len(raw) > maxText {
		d.fail(fmt.Errorf("%w: a text has more than %d bytes", ErrLimit, maxText))
		return ""
	}
	if text, ok := d.texts[string(raw)]; ok {
		return text
	}
	text, err := unquote(raw)
	if err != nil {
		d.fail(err)
	}
	d.hold(len(text) + 16) // what its allocation takes more
	d.texts[string(raw)] = text
	return text
}

// hold counts bytes that are kept.
func (d *document) hold(n int) {
	if d.budget.Held += int64(n); d.budget.Held > maxHeld {
		d.fail(fmt.Errorf("%w: it takes more than %d MiB of memory", ErrLimit, maxHeld>>20))
	}
}

// count counts one more thing, of which there may be most, and reports whether it may be read.
func (d *document) count(n *int, most int, what string) bool {
	if *n++; *n > most {
		d.fail(fmt.Errorf("%w: it has more than %d %s", ErrLimit, most, what))
	}
	if *n%256 == 0 && d.budget.Context != nil && d.budget.Context.Err() != nil {
		d.fail(context.Cause(d.budget.Context))
	}
	return d.err == nil
}

// keep appends v to a list that is kept.
func keep[T any](d *document, list []T, v T) []T {
	d.hold(int(reflect.TypeFor[T]().Size()))
	return append(list, v)
}

// fit returns a list that takes no more memory than its elements do.
func fit[T any](list []T) []T {
	if len(list) == cap(list) {
		return list
	}
	return append(make([]T, 0, len(list)), list...)
}

// words reads a list of words as Kubernetes has them. Others are left out.
func (d *document) words() []string {
	var words []string
	n := 0
	d.array(func() {
		if !d.count(&n, maxWords, "words for one resource") {
			return
		}
		if word := d.text(); isSegment(word) {
			words = keep(d, words, word)
		}
	})
	return fit(words)
}

// word reads one word as Kubernetes has it; another text is an empty one.
func (d *document) word() string {
	if word := d.text(); isSegment(word) {
		return word
	}
	return ""
}

// references calls found with the names of the definitions that a part of an OpenAPI v2
// document refers to.
func references(part []byte, found func(name string)) {
	d := open(part, &Budget{})
	var value func()
	value = func() {
		switch d.first() {
		case '{':
			d.object(func(key []byte) {
				if !bytes.Equal(key, []byte("$ref")) || d.first() != '"' {
					value()
				} else if name, ok := bytes.CutPrefix(d.skip(), []byte(`"#/definitions/`)); ok {
					if text, err := unquote(append([]byte{'"'}, name...)); err == nil {
						found(text)
					}
				}
			})
		case '[':
			d.array(value)
		default:
			d.skip()
		}
	}
	value()
}

// HasValues reports whether a JSON document has n values or more, with its keys.
func HasValues(document []byte, n int) bool {
	for i := 0; i < len(document); i++ {
		switch document[i] {
		case '"':
			next, closed, err := skipString(document, i+1)
			if err != nil || !closed {
				return false // it is not JSON
			}
			i = next - 1
		case ',', ':', '[', '{':
			n--
		}
		if n <= 0 {
			return true
		}
	}
	return false
}

// Elements returns the elements of a JSON array as they are; none of null.
func Elements(array []byte, most int) ([]json.RawMessage, error) {
	var elements []json.RawMessage
	n := 0
	d := open(array, &Budget{})
	if d.next = skipSpace(array, 0); d.next == len(array) {
		return nil, errEnd
	}
	d.array(func() {
		if d.count(&n, most, "elements") {
			elements = append(elements, d.skip())
		}
	})
	if d.err == nil && skipSpace(array, d.next) < len(array) {
		d.err = errTrailing
	}
	return elements, d.err
}
