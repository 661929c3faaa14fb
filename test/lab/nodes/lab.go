//go:build linux

package nodes

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Lab is a set of machines on one network.
type Lab struct {
	Machines []*Machine

	dir     string
	program string
	// lives are the standard inputs of first processes: when they end, so do
	// the machines.
	lives []io.Closer
	waits []*exec.Cmd
}

const labFile = "nodes.json"

// New describes a lab in dir, whose machines are not started yet. The first
// name is the hub's. program is the path of labnode, a static binary.
func New(dir, logDir, program string, names []string) (*Lab, error) {
	if missing := Missing(); missing != "" {
		return nil, fmt.Errorf("starting a lab with nodes: %s", missing)
	}
	for _, private := range []string{"/run", "/var/run", "/var/lib", "/var/log", "/proc", "/sys", "/dev"} {
		if strings.HasPrefix(dir+"/", private+"/") {
			return nil, fmt.Errorf("starting a lab in %s: each machine has a %s of its own; choose a folder elsewhere", dir, private)
		}
	}
	l := &Lab{dir: dir, program: program}
	var err error
	if l.Machines, err = layOut(dir, logDir, names); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	raw, err := json.Marshal(l.Machines)
	if err != nil {
		return nil, err
	}
	return l, os.WriteFile(filepath.Join(dir, labFile), raw, 0o600)
}

// Open finds the lab in dir, which another process started.
func Open(dir string) (*Lab, error) {
	l := &Lab{dir: dir}
	raw, err := os.ReadFile(filepath.Join(dir, labFile))
	if err != nil {
		return nil, err
	}
	return l, json.Unmarshal(raw, &l.Machines)
}

// Is reports whether a lab with nodes is, or was, in dir.
func Is(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, labFile))
	return err == nil
}

// Machine finds one by the name of its cluster.
func (l *Lab) Machine(name string) (*Machine, error) {
	for _, m := range l.Machines {
		if m.Name == name {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no cluster %q in the lab", name)
}

func (l *Lab) wanFile() string { return filepath.Join(l.dir, "wan.pid") }

// StartNetwork starts the network between the machines.
func (l *Lab) StartNetwork() error {
	if err := raiseSettings(); err != nil {
		return err
	}
	out, err := l.spawn(l.wanFile(), filepath.Join(l.Machines[0].LogDir, "wan.log"), syscall.CLONE_NEWNET|syscall.CLONE_NEWPID, nil, "network")
	if err != nil {
		return fmt.Errorf("starting the lab's network: %w", err)
	}
	return awaitOK(out)
}

// spawn starts labnode in namespaces of its own.
func (l *Lab) spawn(pidFile, logFile string, namespaces uintptr, apiSocket *os.File, args ...string) (*bufio.Reader, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(l.program, args...)
	cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root"}
	cmd.Dir, cmd.Stderr = "/", log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: namespaces}
	if apiSocket != nil {
		cmd.ExtraFiles = []*os.File{apiSocket}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting a process in new namespaces: %w", err)
	}
	l.lives, l.waits = append(l.lives, in), append(l.waits, cmd)
	return bufio.NewReader(out), remember(pidFile, cmd.Process.Pid)
}

func awaitOK(out *bufio.Reader) error {
	if line, err := out.ReadString('\n'); line != "ok\n" {
		return fmt.Errorf("its first process said %q and ended (%v); see its log", line, err)
	}
	return nil
}

// StartMachine starts one machine and plugs it in. Machines are started one
// after the other.
func (l *Lab) StartMachine(m *Machine) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	m.APIPort = listener.Addr().(*net.TCPAddr).Port
	apiSocket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer apiSocket.Close()
	if err := os.MkdirAll(m.path("programs"), 0o755); err != nil {
		return err
	}
	if err := makeCgroup(m.Cgroup); err != nil {
		return err
	}
	if err := m.writeSpec(); err != nil {
		return err
	}
	out, err := l.spawn(m.processFile(), filepath.Join(m.LogDir, m.Name+"-machine.log"),
		syscall.CLONE_NEWNET|syscall.CLONE_NEWPID|syscall.CLONE_NEWNS|syscall.CLONE_NEWUTS|syscall.CLONE_NEWIPC, apiSocket, "machine", m.Dir)
	if err != nil {
		return fmt.Errorf("starting the machine of %s: %w", m.Name, err)
	}
	if err := l.plugIn(m); err != nil {
		return err
	}
	if _, err := io.WriteString(l.lives[len(l.lives)-1].(io.Writer), "go\n"); err != nil {
		return err
	}
	if err := awaitOK(out); err != nil {
		return fmt.Errorf("starting the machine of %s: %w", m.Name, err)
	}
	return nil
}

// port is the name of a machine's end of the cable at the bridge: names of
// clusters may be longer than those of interfaces.
func (l *Lab) port(m *Machine) string { return "port" + m.Address[len(network):] }

func (l *Lab) plugIn(m *Machine) error {
	wan, machine := alive(l.wanFile()), alive(m.processFile())
	if err := run("ip", "link", "add", "name", l.port(m), "netns", strconv.Itoa(wan), "type", "veth",
		"peer", "name", "wan0", "netns", strconv.Itoa(machine)); err != nil {
		return err
	}
	for _, args := range [][]string{{"master", "wan"}, {"up"}} {
		if err := l.Run("", append([]string{"ip", "link", "set", l.port(m)}, args...)...); err != nil {
			return err
		}
	}
	return nil
}

func run(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("running %s %s: %w: %s", name, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Stop ends every machine and removes what they left behind, all but the files.
func (l *Lab) Stop() error {
	var errs []error
	for _, m := range l.Machines {
		errs = append(errs, kill(m.processFile()))
	}
	errs = append(errs, kill(l.wanFile()))
	for _, life := range l.lives {
		_ = life.Close()
	}
	for _, cmd := range l.waits {
		_ = cmd.Wait()
	}
	l.lives, l.waits = nil, nil
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, m := range l.Machines {
		errs = append(errs, removeCgroup(m.Cgroup))
	}
	errs = append(errs, restoreSettings())
	// Everything was mounted in namespaces that are gone; be sure of it before
	// anybody deletes the folder.
	if mounts, err := os.ReadFile("/proc/self/mountinfo"); err != nil || strings.Contains(string(mounts), " "+l.dir+"/") {
		errs = append(errs, fmt.Errorf("something is still mounted under %s (%v)", l.dir, err))
	}
	return errors.Join(errs...)
}
