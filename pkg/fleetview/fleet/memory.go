package fleet

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

const (
	// FreeHeld is what one answer, or one item of a list, may take while it is read without
	// being counted: all but few are smaller.
	FreeHeld = 1 << 20
	// HeldByUser and heldByAll bound what larger ones take, of one user and of all. A member
	// that sends 16 MiB of an item, and then a byte now and then, holds them for minutes.
	HeldByUser = 64 << 20
	heldByAll  = 192 << 20
)

var ErrHeld = fmt.Errorf("what is read for you at a time takes more than %d MiB, or for all users more than %d MiB: try again", HeldByUser>>20, heldByAll>>20)

// Memory counts what half-read answers of members take, by user. It is safe for
// concurrent use.
type Memory struct {
	Mu     sync.Mutex
	All    int64
	ByUser map[string]int64
}

func NewMemory() *Memory { return &Memory{ByUser: map[string]int64{}} }

// take counts n bytes more for a user, and less if n is negative.
func (h *Memory) take(user string, n int64) error {
	h.Mu.Lock()
	defer h.Mu.Unlock()
	if n > 0 && (h.ByUser[user]+n > HeldByUser || h.All+n > heldByAll) {
		return ErrHeld
	}
	h.All += n
	if h.ByUser[user] += n; h.ByUser[user] <= 0 {
		delete(h.ByUser, user)
	}
	return nil
}

// Holding is what one answer takes. It is safe for concurrent use.
type Holding struct {
	of   *Memory
	user string

	mu        sync.Mutex
	size      int64
	taken     int64
	forgotten bool
}

func (h *Memory) Begin(user string) *Holding { return &Holding{of: h, user: user} }

// Grow sets the size to which the answer has grown. It may become smaller.
func (h *Holding) Grow(size int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resize(size)
}

func (h *Holding) resize(size int64) error {
	over := max(size-FreeHeld, 0)
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

// Add counts n bytes more.
func (h *Holding) Add(n int64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.resize(h.size + n)
}

// Forget ends the count: nothing is held any more.
func (h *Holding) Forget() {
	_ = h.Grow(0) // it does not grow
	h.mu.Lock()
	defer h.mu.Unlock()
	h.forgotten = true
}

// Allowance is how much the answers of a member to one question may have together.
type Allowance struct {
	Limit   int64
	Holding *Holding

	mu   sync.Mutex
	used int64
	err  error
}

// take counts n bytes. After an error no more are allowed.
func (a *Allowance) take(n int) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.used += int64(n)
	if a.used > a.Limit && a.err == nil {
		a.err = fmt.Errorf("it has more than %d KiB", a.Limit>>10)
	}
	if a.err == nil {
		a.err = a.Holding.Add(int64(n))
	}
	return a.err
}

// Exceeded returns why no more is allowed.
func (a *Allowance) Exceeded() error { return a.take(0) }

// Read reads a body to its end. The slice may have room for as much again behind it.
func (a *Allowance) Read(body io.Reader) ([]byte, error) {
	buffer := new(bytes.Buffer)
	_, err := buffer.ReadFrom(a.Reader(body))
	return buffer.Bytes(), err
}

// Reader returns a reader of body that counts what it reads.
func (a *Allowance) Reader(body io.Reader) io.Reader { return &allowedReader{body, a} }

type allowedReader struct {
	io.Reader
	allowance *Allowance
}

func (r *allowedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	if exceeded := r.allowance.take(n); exceeded != nil {
		return 0, exceeded
	}
	return n, err
}
