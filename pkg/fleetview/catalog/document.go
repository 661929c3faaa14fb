package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
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
// A document above a limit is an error before memory is taken for it.
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
	scan   merge.Scanner
	// texts has each text once: most resources have the same verbs.
	texts map[string]string
}

func open(data []byte, b *Budget) *document {
	return &document{data: data, budget: b, texts: map[string]string{}}
}

// read reads the document, an object. Only whitespace may follow it.
func (d *document) read(member func(key []byte)) error {
	if d.next = merge.SkipSpace(d.data, 0); d.next == len(d.data) {
		return merge.ErrEnd
	}
	d.object(member)
	if d.err == nil && merge.SkipSpace(d.data, d.next) < len(d.data) {
		d.err = merge.ErrTrailing
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
		d.fail(merge.ErrEnd)
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
	m := merge.Walk(d.data, d.next)
	for m.More() {
		d.next = m.Value
		member(m.Key)
		if m.Next = d.next; d.err != nil {
			return
		}
	}
	if d.next = m.Next; m.Err != nil {
		d.fail(m.Err)
	}
}

// array reads an array or null. element reads or skips each value.
func (d *document) array(element func()) {
	if d.absent() {
		return
	}
	if c := d.first(); c != '[' {
		d.fail(merge.Syntax(c))
		return
	}
	d.next++
	for n := 0; ; n++ {
		d.next = merge.SkipSpace(d.data, d.next)
		switch c := d.first(); {
		case d.err != nil:
			return
		case c == ']':
			d.next++
			return
		case n > 0 && c != ',':
			d.fail(merge.Syntax(c))
			return
		case n > 0:
			d.next = merge.SkipSpace(d.data, d.next+1)
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
	d.scan.Reset()
	start := d.next
	next, done, err := d.scan.Scan(d.data, start)
	switch {
	case err != nil:
		d.fail(err)
	case !done:
		d.fail(merge.ErrEnd)
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
		d.fail(merge.Syntax(c))
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
	text, err := merge.Unquote(raw)
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

// HasValues reports whether a JSON document has n values or more, with its keys.
func HasValues(document []byte, n int) bool {
	for i := 0; i < len(document); i++ {
		switch document[i] {
		case '"':
			next, closed, err := merge.SkipString(document, i+1)
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

// APIGroup is one group of aggregated discovery (apidiscovery.k8s.io). Its JSON is the
// same in v2 and v2beta1. The types are here and not k8s.io/api's because this package
// imports k8s.io/apimachinery only.
type APIGroup struct {
	Metadata APIGroupMetadata `json:"metadata"`
	// Versions are in order of preference.
	Versions []APIVersion `json:"versions,omitempty"`
}

// APIGroupMetadata holds the group's name, which is empty for the core group.
type APIGroupMetadata struct {
	Name string `json:"name,omitempty"`
}

// APIVersion is one version of a group.
type APIVersion struct {
	Version   string        `json:"version"`
	Resources []APIResource `json:"resources,omitempty"`
	Freshness string        `json:"freshness,omitempty"`
}

// APIResource is one resource of a group version.
type APIResource struct {
	Resource         string                   `json:"resource"`
	ResponseKind     *metav1.GroupVersionKind `json:"responseKind,omitempty"`
	Scope            string                   `json:"scope"`
	SingularResource string                   `json:"singularResource"`
	Verbs            []string                 `json:"verbs"`
	ShortNames       []string                 `json:"shortNames,omitempty"`
	Categories       []string                 `json:"categories,omitempty"`
	Subresources     []APISubresource         `json:"subresources,omitempty"`
}

// APISubresource is one subresource of a resource.
type APISubresource struct {
	Subresource   string                    `json:"subresource"`
	ResponseKind  *metav1.GroupVersionKind  `json:"responseKind,omitempty"`
	AcceptedTypes []metav1.GroupVersionKind `json:"acceptedTypes,omitempty"`
	Verbs         []string                  `json:"verbs"`
}

// isSegment reports whether s can be one segment of a URL's path as Kubernetes uses it.
func isSegment(s string) bool {
	if s == "" || len(s) > 253 || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '_' {
			return false
		}
	}
	return true
}
