package merge

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// appendProtobufPlaces appends a message with its places restored.
func (e *edit) appendProtobufPlaces(dst, message []byte, places Places, depth int) (_ []byte, err error) {
	for len(message) > 0 {
		var f field
		if f, message, err = nextField(message); err != nil {
			return dst, err
		}
		var in Places
		for _, place := range places {
			if depth < len(place.numbers) && place.numbers[depth] == f.number {
				in = append(in, place)
			}
		}
		if len(in) == 0 || f.kind != protowire.BytesType {
			dst = append(dst, f.text...)
			continue
		}
		if dst, err = e.appendProtobufPlace(dst, f, in, depth+1); err != nil {
			return dst, err
		}
	}
	return dst, nil
}

// appendProtobufPlace appends a field in which places are.
func (e *edit) appendProtobufPlace(dst []byte, f field, places Places, depth int) (_ []byte, err error) {
	start := len(dst)
	what := what(-1)
	if depth == len(places[0].numbers) {
		what = places[0].what
	}
	switch what {
	case labels:
		return e.appendProtobufLabel(dst, f)
	case name:
		dst = append(dst, e.plain(string(f.content))...)
	case labelSelector:
		for selector := f.content; len(selector) > 0; {
			var in field
			if in, selector, err = nextField(selector); err != nil {
				return dst, err
			}
			if in.number != selectorLabels {
				dst = append(dst, in.text...)
			} else if dst, err = e.appendProtobufLabel(dst, in); err != nil {
				return dst, err
			}
		}
	default:
		if dst, err = e.appendProtobufPlaces(dst, f.content, places, depth); err != nil {
			return dst, err
		}
	}
	return closeField(dst, start, f.number), nil
}

// appendProtobufLabel appends an entry of a map of labels, restored.
func (e *edit) appendProtobufLabel(dst []byte, f field) (_ []byte, err error) {
	if e.sets() {
		return append(dst, f.text...), nil
	}
	if f.kind != protowire.BytesType {
		return dst, fmt.Errorf("reading protobuf: field %d has type %d", f.number, f.kind)
	}
	key, value, err := entryOf(f)
	switch {
	case err != nil:
		return dst, err
	case key == e.label && e.label != "":
		e.noteEntry(f, false)
		return dst, nil
	}
	plain := e.plain(value)
	if plain == value {
		return append(dst, f.text...), nil
	}
	start := len(dst)
	dst = protowire.AppendString(protowire.AppendTag(dst, entryKey, protowire.BytesType), key)
	dst = protowire.AppendString(protowire.AppendTag(dst, entryValue, protowire.BytesType), plain)
	return closeField(dst, start, f.number), nil
}

// entryOf returns the key and the value of an entry of a map.
func entryOf(f field) (key, value string, err error) {
	for entry := f.content; len(entry) > 0; {
		var in field
		if in, entry, err = nextField(entry); err != nil {
			return "", "", err
		}
		switch in.number {
		case entryKey:
			key = string(in.content)
		case entryValue:
			value = string(in.content)
		}
	}
	return key, value, nil
}

// noteEntry notes what the view's label or annotation says.
func (e *edit) noteEntry(f field, annotation bool) {
	if key, cluster, err := entryOf(f); err == nil && e.note != nil && key == e.label {
		e.note(Mention{Cluster: cluster, Annotation: annotation})
	}
}

// appendProtobufOwner appends an OwnerReference with its name edited.
func (e *edit) appendProtobufOwner(dst []byte, f field) (_ []byte, err error) {
	if e.sets() && !e.qualify {
		return append(dst, f.text...), nil
	}
	if f.kind != protowire.BytesType {
		return dst, fmt.Errorf("reading protobuf: field %d has type %d", f.number, f.kind)
	}
	start := len(dst)
	for owner := f.content; len(owner) > 0; {
		var in field
		if in, owner, err = nextField(owner); err != nil {
			return dst, err
		}
		if in.number != ownerName || in.kind != protowire.BytesType {
			dst = append(dst, in.text...)
			continue
		}
		name := string(in.content)
		if e.sets() {
			name += "@" + e.cluster
		} else {
			name = e.plain(name)
		}
		dst = protowire.AppendString(protowire.AppendTag(dst, ownerName, protowire.BytesType), name)
	}
	return closeField(dst, start, f.number), nil
}
