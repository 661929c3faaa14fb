package fleetview

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

const (
	// freeHeld is what one answer, or one item of a list, may take while it is read without
	// being counted: all but few are smaller.
	freeHeld = 1 << 20
	// heldByUser and heldByAll bound what larger ones take, of one user and of all. A member
	// that sends 16 MiB of an item, and then a byte now and then, holds them for minutes.
	heldByUser = 64 << 20
	heldByAll  = 192 << 20
)

var errHeld = fmt.Errorf("what is read for you at a time takes more than %d MiB, or for all users more than %d MiB: try again", heldByUser>>20, heldByAll>>20)

// heldBytes counts what half-read answers of members take, by user. It is safe for
// concurrent use.
type heldBytes struct {
	mu     sync.Mutex
	all    int64
	byUser map[string]int64
}

func newHeldBytes() *heldBytes { return &heldBytes{byUser: map[string]int64{}} }

// take counts n bytes more for a user, and less if n is negative.
func (h *heldBytes) take(user string, n int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n > 0 && (h.byUser[user]+n > heldByUser || h.all+n > heldByAll) {
		return errHeld
	}
	h.all += n
	if h.byUser[user] += n; h.byUser[user] <= 0 {
		delete(h.byUser, user)
	}
	return nil
}

// holding is what one answer takes. It is safe for concurrent use.
type holding struct {
	of   *heldBytes
	user string

	mu        sync.Mutex
	size      int64
	taken     int64
	forgotten bool
}

func (h *heldBytes) begin(user string) *holding { return &holding{of: h, user: user} }

// grow sets the size to which the answer has grown. It may become smaller.
func (h *holding) grow(size int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resize(size)
}

func (h *holding) resize(size int64) error {
	over := max(size-freeHeld, 0)
	if h.forgotten || over == h.taken {
		h.size = size
		return nil
	}
	if err := h.of.take(h.user, over-h.taken); err != nil {
		return err
	}
	h.size, h.taken = size, over
	return nil
}

// add counts n bytes more.
func (h *holding) add(n int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resize(h.size + n)
}

// forget ends the count: nothing is held any more.
func (h *holding) forget() {
	_ = h.grow(0) // it does not grow
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgotten = true
}

// allowance is how much the answers of a member to one question may have together.
type allowance struct {
	limit   int64
	holding *holding

	mu   sync.Mutex
	used int64
	err  error
}

// take counts n bytes. After an error no more are allowed.
func (a *allowance) take(n int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used += int64(n)
	if a.used > a.limit && a.err == nil {
		a.err = fmt.Errorf("it has more than %d KiB", a.limit>>10)
	}
	if a.err == nil {
		a.err = a.holding.add(int64(n))
	}
	return a.err
}

// exceeded returns why no more is allowed.
func (a *allowance) exceeded() error { return a.take(0) }

// read reads a body to its end. The slice may have room for as much again behind it.
func (a *allowance) read(body io.Reader) ([]byte, error) {
	buffer := new(bytes.Buffer)
	_, err := buffer.ReadFrom(&allowedReader{body, a})
	return buffer.Bytes(), err
}

type allowedReader struct {
	io.Reader
	allowance *allowance
}

func (r *allowedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if exceeded := r.allowance.take(n); exceeded != nil {
		return 0, exceeded
	}
	return n, err
}
