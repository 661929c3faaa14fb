package merge

import (
	"errors"
	"fmt"
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
	for m.more() {
		switch string(m.key) {
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
	if m.data[m.value] == 'n' {
		m.skip()
		return
	}
	var namespace, name, uid, version bool
	in := m.inner()
	for in.more() {
		switch string(in.key) {
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
	if in.err != nil {
		m.fail(in.err)
	}
	m.next = in.next
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
	for m.more() {
		if string(m.key) != "object" {
			m.skip()
		} else if m.once(&seen) {
			in := m.inner()
			key = keyOf(&in)
			if m.next = in.next; in.err != nil {
				m.fail(in.err)
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

// KeyOfProtobuf returns the key of an object in protobuf, with its envelope.
func KeyOfProtobuf(object []byte) (Key, error) {
	e, err := openEnvelope(object)
	if err != nil {
		return Key{}, err
	}
	key, err := KeyOfProtobufItem(e.raw)
	if err != nil {
		return Key{}, err
	}
	key.APIVersion, key.Kind = e.apiVersion, e.kind
	return key, nil
}

// KeyOfProtobufItem returns the key of an item of a list in protobuf, which has neither an
// envelope nor a kind.
func KeyOfProtobufItem(item []byte) (key Key, err error) {
	var seen bool
	for len(item) > 0 {
		var f field
		if f, item, err = nextField(item); err != nil {
			return Key{}, err
		}
		if f.number != objectMetadata {
			continue
		}
		if err := f.known(&seen); err != nil {
			return Key{}, err
		}
		if err := key.readProtobuf(f.content); err != nil {
			return Key{}, err
		}
	}
	return key, nil
}

// readProtobuf reads an ObjectMeta.
func (k *Key) readProtobuf(meta []byte) error {
	var seen [metaVersion + 1]bool
	for len(meta) > 0 {
		f, rest, err := nextField(meta)
		if err != nil {
			return err
		}
		meta = rest
		var text *string
		switch f.number {
		case metaName:
			text = &k.Name
		case metaNamespace:
			text = &k.Namespace
		case metaUID:
			text = &k.UID
		case metaVersion:
			text = &k.Version
		default:
			continue
		}
		if err := f.known(&seen[f.number]); err != nil {
			return err
		}
		*text = string(f.content)
	}
	return nil
}
