package encoding

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// jsonCodec is objects in JSON, whole or their metadata.
type jsonCodec struct{ media Media }

func (c jsonCodec) Media() Media { return c.media }

func (c jsonCodec) Source(rewriter *merge.Rewriter) Source { return jsonSource{rewriter} }

func (c jsonCodec) AppendOwn(dst []byte, kind string, object runtime.Object) ([]byte, error) {
	text, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("writing an event: %w", err)
	}
	return append(append(appendEvent(dst, kind), text...), "}\n"...), nil
}

// appendEvent appends the beginning of an event, up to its object.
func appendEvent(dst []byte, kind string) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, kind...)
	return append(dst, `","object":`...)
}

type jsonSource struct{ rewriter *merge.Rewriter }

func (s jsonSource) Events(body io.Reader) func() (Event, error) {
	in := &input{from: body}
	return func() (Event, error) {
		kind, object, err := in.jsonEvent()
		if err != nil {
			return Event{}, err
		}
		item, err := in.buffer.indexer.Item(object)
		if err != nil {
			return Event{}, fmt.Errorf("reading an object: %w", err)
		}
		key, err := merge.KeyOfItem(item)
		if err != nil {
			return Event{}, fmt.Errorf("reading an object: %w", err)
		}
		return Event{Kind: kind, Key: key, item: item, Initial: endsInitial(kind, object)}, nil
	}
}

func (s jsonSource) List(body io.Reader, visit func(Event) error) (merge.ListMeta, error) {
	list := merge.NewReader(body)
	var of typePrefix
	for {
		item, err := list.Next()
		if err == io.EOF {
			return list.Meta(), nil
		}
		if err == nil && list.Columns() != nil {
			err = errors.New("reading a list: it is a Table")
		}
		if err != nil {
			return list.Meta(), err
		}
		e, err := of.whole(list.Meta(), item)
		if err != nil {
			return list.Meta(), err
		}
		if err := visit(e); err != nil {
			return list.Meta(), err
		}
	}
}

// typePrefix is what the items of a list are, as it is in front of their JSON.
type typePrefix struct {
	of   metav1.TypeMeta
	text []byte
}

// whole returns an item of a list as it is in an event, which says what it is.
func (p *typePrefix) whole(list merge.ListMeta, item merge.Item) (Event, error) {
	key, err := merge.KeyOfItem(item)
	if err != nil {
		return Event{}, fmt.Errorf("reading an object: %w", err)
	}
	if key.Kind != "" {
		return Event{Key: key, item: item}, nil
	}
	if p.text == nil {
		if p.of, err = merge.ItemsOf(list); err != nil {
			return Event{}, err
		}
		text, err := json.Marshal(p.of)
		if err != nil {
			return Event{}, fmt.Errorf("writing an object: %w", err)
		}
		p.text = text[:len(text)-1] // the object goes on
	}
	key.APIVersion, key.Kind = p.of.APIVersion, p.of.Kind
	return Event{Key: key, item: item, of: p.text}, nil
}

func (s jsonSource) Append(dst []byte, e Event) ([]byte, error) {
	if e.item.IsZero() {
		object, err := json.Marshal(partial(e.Key))
		if err != nil {
			return nil, fmt.Errorf("writing an object: %w", err)
		}
		e.item = merge.NewItem(object)
	}
	dst = append(appendEvent(dst, e.Kind), e.of...)
	begin := len(dst)
	dst, err := s.rewriter.AppendItem(dst, e.item)
	if err == nil && len(e.of) > 0 {
		dst[begin] = ',' // in place of the brace, which of has: it has metadata at least
	}
	return append(dst, "}\n"...), err
}
