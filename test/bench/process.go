package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"open-cluster-management.io/cluster-proxy/test/bench/procfs"
	"open-cluster-management.io/cluster-proxy/test/testkit/program"
)

// process is a relaying process whose CPU time and memory are counted.
type process struct {
	cmd  *exec.Cmd
	log  *os.File
	in   io.Writer // its standard input, if its first line was waited for
	out  *bufio.Reader
	once sync.Once
	// ended is closed when the process has, unless its output is read here.
	ended chan struct{}
	// collect makes it collect its garbage.
	collect func() error
}

// start runs a program. If firstLine is asked for, it waits for the program's
// first line of output and returns it.
func start(logFile string, firstLine bool, args ...string) (*process, string, error) {
	log, err := os.Create(logFile)
	if err != nil {
		return nil, "", err
	}
	p := &process{cmd: exec.Command(args[0], args[1:]...), log: log, ended: make(chan struct{})}
	p.cmd.Stderr, p.cmd.Stdout = log, log
	if firstLine {
		p.cmd.Stdout = nil
		out, err := p.cmd.StdoutPipe()
		if err != nil {
			return nil, "", err
		}
		if p.in, err = p.cmd.StdinPipe(); err != nil {
			return nil, "", err
		}
		p.out = bufio.NewReader(out)
	}
	if err := p.cmd.Start(); err != nil {
		return nil, "", fmt.Errorf("starting %s: %w", args[0], err)
	}
	if !firstLine {
		go func() {
			defer close(p.ended)
			_ = p.cmd.Wait()
		}()
		return p, "", nil
	}
	line, err := p.out.ReadString('\n')
	if err != nil {
		p.stop()
		return nil, "", fmt.Errorf("%s ended before it was ready; its log ends with:\n%s", args[0], program.Tail(logFile))
	}
	return p, strings.TrimSpace(line), nil
}

func (p *process) stop() {
	p.once.Do(func() {
		_ = p.cmd.Process.Kill()
		if p.out == nil {
			<-p.ended
		} else {
			_ = p.cmd.Wait()
		}
		_ = p.log.Close()
	})
}

// hasEnded returns an error with the end of the log if the process has ended.
func (p *process) hasEnded() error {
	select {
	case <-p.ended:
		return fmt.Errorf("%s has ended: %s; its log ends with:\n%s", p.cmd.Path, p.cmd.ProcessState, program.Tail(p.log.Name()))
	default:
		return nil
	}
}

// command gives one of bench's own processes a line, and waits for its answer.
func (p *process) command(line string) error {
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		return err
	}
	_, err := p.out.ReadString('\n')
	return err
}

// cpu is the user and system time that the process has used.
func (p *process) cpu() (time.Duration, error) { return procfs.CPU(p.cmd.Process.Pid) }

// rss is the process's memory in bytes that is in RAM and not in a file.
func (p *process) rss() (int64, error) { return procfs.Anonymous(p.cmd.Process.Pid) }

func sum[T int64 | time.Duration](ps []*process, of func(*process) (T, error)) (T, error) {
	var total T
	for _, p := range ps {
		n, err := of(p)
		if err != nil {
			return 0, err
		}
		total += n
	}
	return total, nil
}
