package fairqueue

import (
	"sync"
	"testing"
	"testing/synctest"
)

// TestTurnsEnd fills a queue, and empties it.
func TestTurnsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 100
		queue := New[string](1, most, 10*most)
		release, err := queue.Acquire(t.Context(), "")
		if err != nil {
			t.Fatal(err)
		}
		var waiting sync.WaitGroup
		for range most {
			waiting.Go(func() {
				if release, err := queue.Acquire(t.Context(), "a"); err == nil {
					release()
				}
			})
		}
		synctest.Wait()
		if _, err := queue.Acquire(t.Context(), "a"); err != ErrFull {
			t.Errorf("one more: %v, want ErrFull", err)
		}
		release()
		waiting.Wait()
		if queue.free != 1 || queue.total != 0 || len(queue.waiting) != 0 || len(queue.order) != 0 {
			t.Errorf("left: %+v, want one free place and an empty queue", queue)
		}
	})
}
