package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

// childOptions are the flags of bench's own processes. Each prints the address
// that it listens on, and then answers the lines that it reads; when there are
// no more it ends, so none is left behind by a bench that is killed.
type childOptions struct {
	role, listen, dir, to string
}

func (o childOptions) run(ctx context.Context) error {
	ended := make(chan error, 1)
	agents := &crowd{ctx: ctx, certs: certFiles(o.dir), to: o.to}
	switch o.role {
	case "hub", "edge":
		l, err := o.listenRelay()
		if err != nil {
			return err
		}
		go func() { ended <- o.relay(l) }()
	case "target":
		l, err := net.Listen("tcp", o.listen)
		if err != nil {
			return err
		}
		defer newTarget(l).close()
		fmt.Println(l.Addr())
	case "agents", "konnectivity-agents":
		agents.stock = o.role != "agents"
		fmt.Println(o.to)
	default:
		return fmt.Errorf("--child=%s is none of bench's processes", o.role)
	}
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			lines <- in.Text()
		}
	}()
	for {
		select {
		case err := <-ended:
			return err
		case line, ok := <-lines:
			if !ok {
				return nil
			}
			if err := agents.answer(line); err != nil {
				return err
			}
			fmt.Println("done")
		}
	}
}

// answer does what a line asks for: "collect" gives unused memory back, "add
// <n>" starts agents.
func (c *crowd) answer(line string) error {
	if line == "collect" {
		debug.FreeOSMemory()
		return nil
	}
	n, err := strconv.Atoi(strings.TrimPrefix(line, "add "))
	if err != nil {
		return fmt.Errorf("%q is not understood: %w", line, err)
	}
	for range n {
		if err := c.add(); err != nil {
			return err
		}
	}
	return nil
}
