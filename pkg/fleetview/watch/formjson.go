package watch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/runtime"

	"open-cluster-management.io/cluster-proxy/pkg/fleetview/merge"
)

// jsonForm is objects in JSON, whole or their metadata.
type jsonForm struct{ wants Form }

func (f jsonForm) media() media { return f.wants.media() }

func (f jsonForm) source(rewriter *merge.Rewriter) source { return jsonSource{rewriter} }

func (f jsonForm) appendOwn(dst []byte, kind string, object runtime.Object) ([]byte, error) {
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

func (s jsonSource) events(body io.Reader) func() (event, error) {
	lines := newLineReader(body)
	return func() (event, error) {
		kind, object, err := lines.next()
		if err != nil {
			return event{}, err
		}
		key, err := merge.KeyOfJSON(object)
		if err != nil {
			return event{}, fmt.Errorf("reading an object: %w", err)
		}
		return event{kind: kind, key: key, object: object}, nil
	}
}

func (s jsonSource) list(body io.Reader, visit func(event) error) (merge.ListMeta, error) {
	list := merge.NewReader(body)
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
		e, err := whole(list.Meta(), item)
		if err != nil {
			return list.Meta(), err
		}
		if err := visit(e); err != nil {
			return list.Meta(), err
		}
	}
}

// whole returns an item of a list as it is in an event, which says what it is.
func whole(list merge.ListMeta, item []byte) (event, error) {
	key, err := merge.KeyOfJSON(item)
	if err != nil {
		return event{}, fmt.Errorf("reading an object: %w", err)
	}
	if key.Kind != "" {
		return event{key: key, object: item}, nil
	}
	of, err := merge.ItemsOf(list)
	if err != nil {
		return event{}, err
	}
	key.APIVersion, key.Kind = of.APIVersion, of.Kind
	prefix, err := json.Marshal(of)
	if err != nil {
		return event{}, fmt.Errorf("writing an object: %w", err)
	}
	prefix[len(prefix)-1] = ','
	return event{key: key, object: append(prefix, item[1:]...)}, nil
}

func (s jsonSource) append(dst []byte, e event) ([]byte, error) {
	if e.object == nil {
		object, err := json.Marshal(partial(e.key))
		if err != nil {
			return nil, fmt.Errorf("writing an object: %w", err)
		}
		e.object = object
	}
	dst, err := s.rewriter.AppendJSON(appendEvent(dst, e.kind), e.object)
	return append(dst, "}\n"...), err
}
