package merge

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

// Indexer makes Items of whole objects. The zero value is ready. It is not safe for
// concurrent use.
type Indexer struct {
	scan  Scanner
	index *index
}

// Item checks the syntax of an object and finds its members. The Item is valid until the
// next one is asked for.
func (x *Indexer) Item(object []byte) (Item, error) {
	if x.index == nil {
		x.index = newIndex(pathOfObject)
	}
	object = object[SkipSpace(object, 0):]
	x.scan.resetIndexed(x.index)
	end, done, err := x.scan.Scan(object, 0)
	switch {
	case err != nil:
		return Item{}, err
	case !done:
		return Item{}, ErrEnd
	case SkipSpace(object, end) < len(object):
		return Item{}, ErrTrailing
	case object[0] != '{':
		return Item{}, Syntax(object[0])
	}
	x.index.finish(object[:end])
	return Item{object[:end], x.index}, nil
}
