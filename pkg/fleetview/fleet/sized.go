package fleet

import (
	"container/list"
	"sync"
)

// Sized is a map of bounded size that forgets what was not used for the longest time. It
// is safe for concurrent use.
type Sized[K comparable, V any] struct {
	limit int64

	mu    sync.Mutex
	used  int64
	order *list.List // of *sizedItem, the last used first
	items map[K]*list.Element
}

type sizedItem[K comparable, V any] struct {
	key   K
	value V
	size  int64
}

func NewSized[K comparable, V any](limit int64) *Sized[K, V] {
	return &Sized[K, V]{limit: limit, order: list.New(), items: map[K]*list.Element{}}
}

func (s *Sized[K, V]) Get(key K) (V, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	element, ok := s.items[key]
	if !ok {
		var none V
		return none, false
	}
	s.order.MoveToFront(element)
	return element.Value.(*sizedItem[K, V]).value, true
}

// Put keeps a value that counts as size. A value larger than the limit is not kept.
func (s *Sized[K, V]) Put(key K, value V, size int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if element, ok := s.items[key]; ok {
		s.remove(element)
	}
	if size > s.limit {
		return
	}
	s.items[key] = s.order.PushFront(&sizedItem[K, V]{key, value, size})
	for s.used += size; s.used > s.limit; {
		s.remove(s.order.Back())
	}
}

func (s *Sized[K, V]) remove(element *list.Element) {
	item := s.order.Remove(element).(*sizedItem[K, V])
	delete(s.items, item.key)
	s.used -= item.size
}
