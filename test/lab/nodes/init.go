//go:build linux

package nodes

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// RunNetwork is the first process of the network between machines: a bridge in
// a namespace that is joined to nothing else.
func RunNetwork() error {
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"link", "add", "wan", "type", "bridge"},
		{"addr", "add", network + "1/24", "dev", "wan"}, {"link", "set", "wan", "up"}} {
		if err := run("ip", args...); err != nil {
			return err
		}
	}
	fmt.Println("ok")
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// RunMachine is the first process of a machine. It returns when the lab is gone.
func RunMachine(dir string) error {
	m, err := readSpec(dir)
	if err != nil {
		return err
	}
	signal.Ignore(syscall.SIGHUP, syscall.SIGPIPE)
	syscall.CloseOnExec(3)
	in := bufio.NewReader(os.Stdin)
	if line, _ := in.ReadString('\n'); line != "go\n" {
		return errors.New("the cable was not plugged in")
	}
	if err := m.mount(); err != nil {
		return err
	}
	if err := m.joinNetwork(); err != nil {
		return err
	}
	listener, err := net.FileListener(os.NewFile(3, "api-server"))
	if err != nil {
		return err
	}
	go serveAPI(listener)
	keeper := &keeper{machine: m, waiters: map[int]chan syscall.WaitStatus{}}
	go keeper.reap()
	go keeper.watch()
	fmt.Println("ok")
	_, err = io.Copy(io.Discard, in)
	return err
}

// serveAPI forwards connections from the outer loopback, where the socket was
// opened, to this machine's API server.
func serveAPI(listener net.Listener) {
	for {
		outer, err := listener.Accept()
		if err != nil {
			log.Print("accepting a connection to the API server: ", err)
			return
		}
		go func() {
			defer outer.Close()
			inner, err := net.Dial("tcp", "127.0.0.1:6443")
			if err != nil {
				return
			}
			defer inner.Close()
			Splice(outer.(*net.TCPConn), inner.(*net.TCPConn))
		}()
	}
}

// Splice copies both ways until both have ended, and passes a clean end on as
// such, and any other as a reset of both.
func Splice(a, b *net.TCPConn) {
	var both sync.WaitGroup
	for _, pair := range [][2]*net.TCPConn{{a, b}, {b, a}} {
		both.Go(func() {
			to, from := pair[0], pair[1]
			if _, err := io.Copy(to, from); err != nil {
				_ = to.SetLinger(0)
				to.Close()
				from.Close()
				return
			}
			_ = to.CloseWrite()
		})
	}
	both.Wait()
}

// keeper runs the programs of a machine.
type keeper struct {
	machine *Machine
	mu      sync.Mutex
	waiters map[int]chan syscall.WaitStatus
}

// watch starts and stops what the machine's folder says, ten times a second.
func (k *keeper) watch() {
	running := map[string]context.CancelFunc{}
	for ; ; time.Sleep(100 * time.Millisecond) {
		files, _ := filepath.Glob(k.machine.path("programs", "*.json"))
		wanted := map[string]bool{}
		for _, file := range files {
			wanted[file] = true
			if running[file] != nil {
				continue
			}
			var p Program
			raw, err := os.ReadFile(file)
			if err != nil || json.Unmarshal(raw, &p) != nil {
				continue
			}
			ctx, cancel := context.WithCancel(context.Background())
			running[file] = cancel
			name := strings.TrimSuffix(filepath.Base(file), ".json")
			_ = os.WriteFile(k.machine.runFile(name), nil, 0o600)
			go k.keep(ctx, name, p)
		}
		for file, cancel := range running {
			if !wanted[file] {
				cancel()
				delete(running, file)
			}
		}
	}
}

// keep starts a program, and again whenever it ends, until ctx is done.
func (k *keeper) keep(ctx context.Context, name string, p Program) {
	defer os.Remove(k.machine.runFile(name))
	for pause := 500 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 10*time.Second) {
		began := time.Now()
		ended, process, err := k.spawn(name, p)
		if err != nil {
			log.Printf("%s: %v", name, err)
		} else {
			stop := context.AfterFunc(ctx, func() { _ = syscall.Kill(process, syscall.SIGTERM) })
			status := <-ended
			stop()
			log.Printf("%s: process %d ended after %s: exit %d, signal %v", name, process, time.Since(began).Round(time.Millisecond), status.ExitStatus(), status.Signal())
		}
		if time.Since(began) > time.Minute {
			pause = 500 * time.Millisecond
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

func (k *keeper) spawn(name string, p Program) (<-chan syscall.WaitStatus, int, error) {
	path, err := exec.LookPath(p.Argv[0])
	if err != nil {
		return nil, 0, err
	}
	out, err := os.OpenFile(filepath.Join(k.machine.LogDir, k.machine.Name+"-"+name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, 0, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, 0, err
	}
	defer null.Close()
	k.mu.Lock() // reap must not look before the channel is there
	defer k.mu.Unlock()
	child, err := os.StartProcess(path, p.Argv, &os.ProcAttr{Dir: "/", Env: append(os.Environ(), p.Env...), Files: []*os.File{null, out, out}})
	if err != nil {
		return nil, 0, err
	}
	ended, pid := make(chan syscall.WaitStatus, 1), child.Pid
	k.waiters[pid] = ended
	return ended, pid, child.Release()
}

// reap collects the machine's dead, among them the orphans.
func (k *keeper) reap() {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		if err != nil {
			time.Sleep(50 * time.Millisecond) // no children just now
			continue
		}
		k.mu.Lock()
		ended := k.waiters[pid]
		delete(k.waiters, pid)
		k.mu.Unlock()
		if ended != nil {
			ended <- status
		}
	}
}
