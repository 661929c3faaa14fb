// Package terminal runs programs in a pseudo-terminal, types into it, says what is on its screen,
// and records it. It needs Linux.
package terminal

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// Size of every terminal.
const (
	Rows = 40
	Cols = 160
)

// Terminal is one with a program in it.
type Terminal struct {
	cmd     *exec.Cmd
	control *os.File
	read    chan struct{}

	mu      sync.Mutex
	screen  *screen
	began   time.Time
	written Recording
}

// Start starts a program in a terminal of its own. Close ends both.
func Start(cmd *exec.Cmd) (*Terminal, error) {
	control, program, err := open()
	if err != nil {
		return nil, fmt.Errorf("opening a pseudo-terminal: %w", err)
	}
	defer program.Close()
	cmd.Stdin, cmd.Stdout, cmd.Stderr = program, program, program
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	cmd.Env = append(cmd.Env, "TERM=xterm-256color", "COLORTERM=")
	if err := cmd.Start(); err != nil {
		control.Close()
		return nil, err
	}
	t := &Terminal{cmd: cmd, control: control, read: make(chan struct{}), screen: newScreen(), began: time.Now()}
	go t.follow()
	return t, nil
}

// follow draws what the program writes, until it has ended.
func (t *Terminal) follow() {
	defer close(t.read)
	buf := make([]byte, 32<<10)
	for {
		n, err := t.control.Read(buf)
		t.mu.Lock()
		t.screen.write(buf[:n])
		t.written = append(t.written, output{time.Since(t.began), string(buf[:n])})
		t.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// Type types text. "\r" is the key Enter, "\x1b" Escape.
func (t *Terminal) Type(text string) error {
	_, err := io.WriteString(t.control, text)
	return err
}

// Screen is what it shows, without blanks at the ends of lines and empty lines at its end.
func (t *Terminal) Screen() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.String()
}

// Await waits until the screen shows all texts at once, and returns it.
func (t *Terminal) Await(ctx context.Context, limit time.Duration, texts ...string) (string, error) {
	var screen string
	err := wait.Poll{Every: 100 * time.Millisecond, For: limit, Ended: t.read}.Try(ctx, func() error {
		screen = t.Screen()
		for _, text := range texts {
			if !strings.Contains(screen, text) {
				return fmt.Errorf("the screen does not show %q", text)
			}
		}
		return nil
	})
	return screen, err
}

// Close ends the program, if it has not ended, as a terminal does whose window is closed.
func (t *Terminal) Close() {
	_ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGHUP) // it leads a group of processes
	stop := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-t.cmd.Process.Pid, syscall.SIGKILL) })
	_ = t.cmd.Wait()
	stop.Stop()
	t.control.Close()
	<-t.read
}
