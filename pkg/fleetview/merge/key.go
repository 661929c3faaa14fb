package merge

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Key names an object, and the version of it.
type Key struct{ APIVersion, Kind, Namespace, Name, UID, Version string }

// KeyOfJSON returns the key of an object in JSON.
func KeyOfJSON(object []byte) (Key, error) { return KeyOfItem(NewItem(object)) }

// KeyOfItem returns the key of an object in JSON.
func KeyOfItem(object Item) (Key, error) {
	m := object.members()
	key := keyOf(&m)
	return key, m.end()
}

// keyOf returns the key of the object that m walks.
func keyOf(m *members) (key Key) {
	var metadata, kind, apiVersion bool
	for m.More() {
		switch string(m.Key) {
		case "metadata":
			if m.once(&metadata) {
				key.readMetadata(m)
			}
		case "kind":
			if m.once(&kind) {
				_, key.Kind = m.text()
			}
		case "apiVersion":
			if m.once(&apiVersion) {
				_, key.APIVersion = m.text()
			}
		default:
			m.skip()
		}
	}
	return key
}

// readMetadata reads the value of m's member, and moves m behind it.
func (k *Key) readMetadata(m *members) {
	if m.data[m.Value] == 'n' {
		m.skip()
		return
	}
	var namespace, name, uid, version bool
	in := m.inner()
	for in.More() {
		switch string(in.Key) {
		case "namespace":
			in.textOnce(&namespace, &k.Namespace)
		case "name":
			in.textOnce(&name, &k.Name)
		case "uid":
			in.textOnce(&uid, &k.UID)
		case "resourceVersion":
			in.textOnce(&version, &k.Version)
		default:
			in.skip()
		}
	}
	if in.Err != nil {
		m.fail(in.Err)
	}
	m.Next = in.Next
}

// textOnce reads the member's text, which must not be given twice.
func (m *members) textOnce(seen *bool, text *string) {
	if m.once(seen) {
		_, *text = m.text()
	}
}

// KeyOfRow returns the key of the object in a Table's row.
func KeyOfRow(row Item) (Key, error) {
	var key Key
	var seen bool
	m := row.members()
	for m.More() {
		if string(m.Key) != "object" {
			m.skip()
		} else if m.once(&seen) {
			in := m.inner()
			key = keyOf(&in)
			if m.Next = in.Next; in.Err != nil {
				m.fail(in.Err)
			}
		}
	}
	err := m.end()
	if err == nil && !seen {
		err = errors.New("it has no object")
	}
	if err != nil {
		return Key{}, fmt.Errorf("reading a row: %w", err)
	}
	return key, nil
}

// ListMeta is what a list or Table says of itself.
type ListMeta struct {
	APIVersion, Kind          string
	ResourceVersion, Continue string
	// RemainingItemCount is how many items follow on later pages, if the member says it.
	RemainingItemCount *int64
}

// readMetadata sets what a list's metadata in JSON says.
func (m *ListMeta) readMetadata(metadata []byte) error {
	var read struct {
		ResourceVersion    string `json:"resourceVersion"`
		Continue           string `json:"continue"`
		RemainingItemCount *int64 `json:"remainingItemCount"`
	}
	if err := json.Unmarshal(metadata, &read); err != nil {
		return fmt.Errorf("reading a list's metadata: %w", err)
	}
	m.ResourceVersion, m.Continue, m.RemainingItemCount = read.ResourceVersion, read.Continue, read.RemainingItemCount
	return nil
}

// ItemsOf returns what the items of a list are. Only items of custom resources say it.
func ItemsOf(list ListMeta) (metav1.TypeMeta, error) {
	kind, ok := strings.CutSuffix(list.Kind, "List")
	if !ok || list.APIVersion == "" {
		return metav1.TypeMeta{}, fmt.Errorf("reading a list: it is %q and does not say what its items are", list.Kind)
	}
	return metav1.TypeMeta{APIVersion: list.APIVersion, Kind: kind}, nil
}

// NotListError says that a document is neither a list nor a Table.
type NotListError struct {
	// Kind is the document's kind, such as "Status", if it has one.
	Kind string
	// Beginning is the document's beginning: at least 4 KiB, or all of it.
	Beginning []byte
}

func (e *NotListError) Error() string {
	if e.Kind == "" {
		return "reading a list: the answer is neither a list nor a Table"
	}
	return fmt.Sprintf("reading a list: the answer is a %q, neither a list nor a Table", e.Kind)
}

// MaxStatus bounds a Status that is read. Those with a cause for each field of an object
// have some KiB.
const MaxStatus = 64 << 10

// ReadStatus reads a Status.
func ReadStatus(document []byte) (status metav1.Status, err error) {
	if len(document) > MaxStatus {
		return status, fmt.Errorf("reading a Status: it has more than %d KiB", MaxStatus>>10)
	}
	err = json.Unmarshal(document, &status)
	if err == nil && status.Kind != "Status" {
		err = fmt.Errorf("it is %q", status.Kind)
	}
	if err != nil {
		return metav1.Status{}, fmt.Errorf("reading a Status: %w", err)
	}
	return status, nil
}

// Majority returns what most of kinds are; empty ones do not count. Of those that are there
// equally often it is the one with the highest rank.
func Majority(kinds []metav1.TypeMeta, rank func(of metav1.TypeMeta) int) (most metav1.TypeMeta) {
	count := map[metav1.TypeMeta]int{}
	for _, of := range kinds {
		if of.Kind == "" {
			continue
		}
		count[of]++
		if n := count[of]; n > count[most] || n == count[most] && rank(of) > rank(most) {
			most = of
		}
	}
	return most
}
