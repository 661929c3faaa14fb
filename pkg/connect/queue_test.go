package connect

import (
	"errors"
	"net"
	"testing"
)

func TestQueue(t *testing.T) {
	address := &net.TCPAddr{Port: 1}
	q := NewQueue(address)
	if q.Addr() != net.Addr(address) {
		t.Errorf("Addr = %v, want %v", q.Addr(), address)
	}
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	handed := make(chan bool, 1)
	go func() { handed <- q.Hand(near) }()
	if got, err := q.Accept(); err != nil || got != near {
		t.Errorf("Accept = %v, %v; want the connection that was handed over", got, err)
	}
	if !<-handed {
		t.Error("Hand = false, want true for a connection that was accepted")
	}
	for range 2 {
		if err := q.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
	if q.Hand(near) {
		t.Error("Hand = true after Close")
	}
	if _, err := q.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close = %v, want %v", err, net.ErrClosed)
	}
}
