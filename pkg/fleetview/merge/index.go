package merge

import "bytes"

// Item is a JSON object whose syntax is right. If it was read from a stream it knows where
// its members are, so nothing of it needs to be read again but what is changed.
type Item struct {
	json  []byte
	index *index
}

// NewItem returns an object of which nothing is known but its text.
func NewItem(json []byte) Item { return Item{json: json} }

// JSON returns the object's text. It must not be changed.
func (o Item) JSON() []byte { return o.json }

// IsZero reports whether there is no object.
func (o Item) IsZero() bool { return o.json == nil }

// index has the places of an object's members, and of those of the objects in it that a
// path leads to: an object's metadata, or the metadata of a row's object. A scanner writes
// it on its way.
type index struct {
	path []string
	// levels has the members of the object, and of what the path leads to.
	levels [][]member
	// open is how many elements of the path the scanner is in.
	open int
	// irregular says that the places are not to be relied on: a key is given twice, or with
	// an escape, or there are very many.
	irregular bool
}

// member is the place of one member of an object.
type member struct {
	// key is the key with its quotes, and the value begins behind the colon.
	key, keyEnd int
	value, end  int
}

// What leads to metadata.
var (
	pathOfObject = []string{"metadata"}
	pathOfRow    = []string{"object", "metadata"}
)

// maxMembers bounds what an index keeps of one object.
const maxMembers = 64

func newIndex(path []string) *index { return &index{path: path, levels: make([][]member, len(path)+1)} }

// reset makes x ready for another object.
func (x *index) reset() {
	for i := range x.levels {
		x.levels[i] = x.levels[i][:0]
	}
	x.open, x.irregular = 0, false
}

// add notes a key at a depth of the path, or one above: key is its text with quotes, which
// is at an index of the object.
func (x *index) add(depth int, key []byte, at int) {
	level := depth - 1
	x.open = level
	if x.irregular || len(x.levels[level]) == maxMembers || bytes.IndexByte(key, '\\') >= 0 {
		x.irregular = true
		return
	}
	x.levels[level] = append(x.levels[level], member{key: at, keyEnd: at + len(key)})
	if level < len(x.path) && string(key[1:len(key)-1]) == x.path[level] {
		x.open = depth
		x.irregular = len(x.levels[depth]) > 0 // the key was there before
	}
}

// finish finds the values, which are between keys.
func (x *index) finish(object []byte) {
	end := len(object)
	for level, members := range x.levels {
		for i := range members {
			m := &members[i]
			m.value = skipSpace(object, skipSpace(object, m.keyEnd)+1)
			if i+1 < len(members) {
				m.end = trimSpace(object, trimSpace(object, members[i+1].key)-1)
			} else {
				m.end = trimSpace(object, end-1)
			}
		}
		if level == len(x.path) {
			return
		}
		i := x.find(object, level)
		if i < 0 {
			return
		}
		end = members[i].end
	}
}

// find returns which member of a level the path goes on with, or -1.
func (x *index) find(object []byte, level int) int {
	for i, m := range x.levels[level] {
		if string(object[m.key+1:m.keyEnd-1]) == x.path[level] {
			return i
		}
	}
	return -1
}

// trimSpace returns the index behind the last byte before i that is no whitespace.
func trimSpace(data []byte, i int) int {
	for i > 0 && isSpace(data[i-1]) {
		i--
	}
	return i
}

// Indexer makes Items of whole objects. The zero value is ready. It is not safe for
// concurrent use.
type Indexer struct {
	scan  scanner
	index *index
}

// Item checks the syntax of an object and finds its members. The Item is valid until the
// next one is asked for.
func (x *Indexer) Item(object []byte) (Item, error) {
	if x.index == nil {
		x.index = newIndex(pathOfObject)
	}
	object = object[skipSpace(object, 0):]
	x.scan.resetIndexed(x.index)
	end, done, err := x.scan.scan(object, 0)
	switch {
	case err != nil:
		return Item{}, err
	case !done:
		return Item{}, errEnd
	case skipSpace(object, end) < len(object):
		return Item{}, errTrailing
	case object[0] != '{':
		return Item{}, syntax(object[0])
	}
	x.index.finish(object[:end])
	return Item{object[:end], x.index}, nil
}
