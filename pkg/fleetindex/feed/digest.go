package feed

import (
	"encoding/binary"
	"fmt"
)

// itemSize is the length of an Item in binary.
const itemSize = 12

// Item stands for an object in one state.
type Item struct {
	// UID is a hash of the object's UID.
	UID uint64
	// Version is a hash of its resourceVersion.
	Version uint32
}

// ItemOf returns the item of an object.
func ItemOf(uid, version string) Item {
	return Item{UID: mix(hash(uid)), Version: uint32(mix(hash(version)))}
}

// Digest stands for all objects of a namespace. The zero value is that of none.
type Digest uint64

// Add returns the digest with one more item.
func (d Digest) Add(i Item) Digest { return d + Digest(mix(i.UID^uint64(i.Version))) }

// Remove returns the digest with one item less.
func (d Digest) Remove(i Item) Digest { return d - Digest(mix(i.UID^uint64(i.Version))) }

// Append appends the binary form of an item.
func (i Item) Append(b []byte) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, i.UID), i.Version)
}

// Items parses the binary form of items.
func Items(b []byte) ([]Item, error) {
	if len(b)%itemSize != 0 {
		return nil, fmt.Errorf("items have %d bytes, which is no multiple of %d", len(b), itemSize)
	}
	items := make([]Item, 0, len(b)/itemSize)
	for ; len(b) > 0; b = b[itemSize:] {
		items = append(items, Item{UID: binary.BigEndian.Uint64(b), Version: binary.BigEndian.Uint32(b[8:])})
	}
	return items, nil
}

// hash is FNV-1a, which hash/fnv makes a writer for.
func hash(text string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(text) {
		h = (h ^ uint64(text[i])) * 1099511628211
	}
	return h
}

// mix is the finalizer of splitmix64: without it, sums of FNV's hashes of similar texts collide.
func mix(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}
