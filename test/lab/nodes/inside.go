//go:build linux

package nodes

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// pid is that of the first process of a machine, or of the network between them
// if name is empty.
func (l *Lab) pid(name string) (int, error) {
	file := l.wanFile()
	if name != "" {
		m, err := l.Machine(name)
		if err != nil {
			return 0, err
		}
		file = m.processFile()
	}
	if pid := alive(file); pid != 0 {
		return pid, nil
	}
	return 0, fmt.Errorf("the machine of %q is not running", name)
}

// Command prepares a command on a machine, or in the network between them if
// name is empty.
func (l *Lab) Command(ctx context.Context, name string, argv ...string) (*exec.Cmd, error) {
	pid, err := l.pid(name)
	if err != nil {
		return nil, err
	}
	enter := []string{"-t", strconv.Itoa(pid), "-m", "-n", "-p", "-u", "-i", "--"}
	if name == "" {
		enter = []string{"-t", strconv.Itoa(pid), "-n", "--"}
	}
	return exec.CommandContext(ctx, "nsenter", append(enter, argv...)...), nil
}

// Run runs a command on a machine and gives what it said as an error if it
// fails.
func (l *Lab) Run(name string, argv ...string) error {
	return l.RunInput(name, "", argv...)
}

// RunInput is Run with a standard input.
func (l *Lab) RunInput(name, input string, argv ...string) error {
	cmd, err := l.Command(context.Background(), name, argv...)
	if err != nil {
		return err
	}
	cmd.Stdin = strings.NewReader(input)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("running %q on %q: %w: %s", argv, name, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Output runs a command on a machine and returns what it wrote.
func (l *Lab) Output(ctx context.Context, name string, argv ...string) ([]byte, error) {
	cmd, err := l.Command(ctx, name, argv...)
	if err != nil {
		return nil, err
	}
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("running %q on %q: %w", argv, name, err)
	}
	return out, nil
}

// Dial opens a connection from inside a machine's network, or from the network
// between them if name is empty. address has an IP, not a name.
func (l *Lab) Dial(ctx context.Context, name, address string) (net.Conn, error) {
	return inside(l, name, func() (net.Conn, error) { return new(net.Dialer).DialContext(ctx, "tcp4", address) })
}

// Listen opens a listener of this process inside a machine's network. address has an IP, not a name.
func (l *Lab) Listen(name, address string) (net.Listener, error) {
	return inside(l, name, func() (net.Listener, error) { return net.Listen("tcp4", address) })
}

// inside opens a socket in the network of a machine.
func inside[T any](l *Lab, name string, open func() (T, error)) (T, error) {
	type result struct {
		socket T
		err    error
	}
	done := make(chan result, 1)
	pid, err := l.pid(name)
	if err != nil {
		return result{}.socket, err
	}
	go func() {
		runtime.LockOSThread()
		socket, err := openFrom(pid, open)
		done <- result{socket, err}
	}()
	r := <-done
	return r.socket, r.err
}

// openFrom runs on a locked thread, which it takes to the other network and
// back and then unlocks. The way back matters: Go parks the main thread, instead
// of ending it, if a goroutine ends with it locked, and the whole process would
// then be shown in the other network by /proc/self.
func openFrom[T any](pid int, open func() (T, error)) (socket T, err error) {
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		return socket, err
	}
	defer home.Close()
	away, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return socket, err
	}
	defer away.Close()
	if err := unix.Setns(int(away.Fd()), unix.CLONE_NEWNET); err != nil {
		return socket, fmt.Errorf("entering the network of process %d: %w", pid, err)
	}
	socket, err = open()
	// A thread that cannot come back stays locked, so that nobody uses it.
	if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread()
	}
	return socket, err
}

// Link plugs a machine's cable in or out.
func (l *Lab) Link(name string, state LinkState) error {
	m, err := l.Machine(name)
	if err != nil {
		return err
	}
	return l.Run("", "ip", "link", "set", l.port(m), string(state))
}

// LinkState is what a cable is.
type LinkState string

const (
	Plugged   LinkState = "up"
	Unplugged LinkState = "down"
)

// Program is kept running on a machine.
type Program struct {
	Argv []string
	Env  []string
}

// Start has a machine keep a program running.
func (m *Machine) Start(name string, p Program) error {
	raw, err := json.Marshal(p)
	if err != nil {
		return err
	}
	partial := m.path("programs", name+".partial")
	if err := os.WriteFile(partial, raw, 0o600); err != nil {
		return err
	}
	return os.Rename(partial, m.path("programs", name+".json"))
}

// Stop has a machine end a program, and returns when it has ended.
func (m *Machine) Stop(ctx context.Context, name string) error {
	if err := os.Remove(m.path("programs", name+".json")); err != nil {
		return fmt.Errorf("stopping program %q of %s: %w", name, m.Name, err)
	}
	for {
		if _, err := os.Stat(m.runFile(name)); os.IsNotExist(err) {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopping program %q of %s: %w", name, m.Name, ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// runFile exists while a machine keeps a program running.
func (m *Machine) runFile(name string) string { return m.path("programs", name+".run") }
