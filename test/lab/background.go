package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// state is what a lab in the background leaves for others to find it by.
type state struct {
	PID int
	// Command is the lab's command line: a process that got the same number
	// later has another one.
	Command string
	// Ready is false while the lab starts.
	Ready     bool
	Started   time.Time
	AgentPort int
	Assets    string
	OCM       string // the folder of its release
	Clusters  []string
	Local     string // the hub's name as a managed cluster
}

// stateFile lies beside the lab's folder, so that it is there before and after.
func stateFile(dir string) string { return filepath.Clean(dir) + ".json" }

// programFile is the lab's own program, in the background.
func programFile(dir string) string { return filepath.Clean(dir) + ".program" }

// DefaultDir is the folder of the lab in the background: LAB_DIR, or one in the
// user's cache folder.
func DefaultDir() (string, error) {
	if dir := os.Getenv("LAB_DIR"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a folder for the lab: %w; set LAB_DIR", err)
	}
	return filepath.Join(cache, "cluster-proxy-lab", "run"), nil
}

// Serve runs a lab until ctx is done: the process in the background.
func Serve(ctx context.Context, options Options) (err error) {
	if s, err := readState(options.Dir); err == nil && s.alive() {
		return fmt.Errorf("a lab is already running, or starting, in %s; stop it with lab down", options.Dir)
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(options.Dir)), 0o755); err != nil {
		return err
	}
	s := state{PID: os.Getpid(), Command: commandLine(os.Getpid()), Started: time.Now()}
	if err := s.write(options.Dir); err != nil {
		return err
	}
	defer os.Remove(stateFile(options.Dir))
	l, err := Start(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Stop()) }()
	s.Ready, s.AgentPort, s.Assets, s.OCM, s.Local = true, l.AgentPort, l.assets.dir, l.assets.ocm, l.local
	for _, c := range l.Managed {
		s.Clusters = append(s.Clusters, c.Name)
	}
	if err := s.write(options.Dir); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

func (s state) write(dir string) error {
	raw, err := json.Marshal(s)
	if err != nil {
		return err
	}
	return replaceFile(stateFile(dir), raw)
}

// Up starts a lab in the background and returns when it is ready. If ctx ends
// first, nothing is left running.
func Up(ctx context.Context, options Options) (*Lab, error) {
	if options.Dir == "" {
		dir, err := DefaultDir()
		if err != nil {
			return nil, err
		}
		options.Dir = dir
	}
	dir, err := filepath.Abs(options.Dir) // the background has another working folder
	if err != nil {
		return nil, err
	}
	options.Dir = dir
	options = options.withDefaults()
	if s, err := readState(options.Dir); err == nil && s.alive() {
		return nil, fmt.Errorf("a lab is already running in %s since %s; stop it with lab down", options.Dir, s.Started.Format(time.DateTime))
	}
	if err := removeDead(options.Dir); err != nil {
		return nil, err
	}
	// Building is done here, where somebody watches.
	folders := readyFolders()
	if options.Nodes {
		folders = nil
	}
	if _, err := buildAssets(ctx, options.OCM, folders, options.Out); err != nil {
		return nil, err
	}
	if _, err := buildOlder(ctx, options); err != nil {
		return nil, err
	}
	source, err := sourceDir()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(options.Dir), 0o755); err != nil {
		return nil, err
	}
	program := programFile(options.Dir)
	build := exec.CommandContext(ctx, "go", "build", "-o", program, "./cmd/lab")
	build.Dir = source
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building the lab: %w\n%s", err, out)
	}
	logFile := options.Dir + ".log"
	log, err := os.Create(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(program, "serve", "--dir="+options.Dir, "--binary="+options.Binary, "--clusters="+strings.Join(options.Clusters, ","),
		"--grpc="+strings.Join(options.GRPC, ","), "--tokens="+strings.Join(options.Tokens, ","), "--older="+strings.Join(options.Older, ","), "--local-cluster="+options.LocalCluster, "--ocm="+string(options.OCM.or()), fmt.Sprint("--nodes=", options.Nodes))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	return waitUp(ctx, options, logFile, cmd, ended)
}

// waitUp shows what the background process says until it is ready.
func waitUp(ctx context.Context, options Options, logFile string, cmd *exec.Cmd, ended <-chan error) (*Lab, error) {
	log, err := os.Open(logFile)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	for {
		said, _ := io.ReadAll(log)
		_, _ = options.Out.Write(said)
		if l, err := Open(options.Dir); err == nil {
			return l, nil
		}
		select {
		case err := <-ended:
			said, _ := io.ReadAll(log)
			return nil, fmt.Errorf("starting the lab: %v\n%s", err, said)
		case <-ctx.Done():
			_ = cmd.Process.Signal(syscall.SIGTERM)
			<-ended
			return nil, errors.Join(ctx.Err(), os.RemoveAll(options.Dir))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// Open finds the lab that runs in the background in dir.
func Open(dir string) (*Lab, error) {
	s, err := readState(dir)
	if err != nil {
		return nil, err
	}
	if !s.alive() {
		return nil, fmt.Errorf("the lab in %s has ended; remove what it left with lab down", dir)
	}
	if !s.Ready {
		return nil, fmt.Errorf("the lab in %s is still starting", dir)
	}
	l := &Lab{dir: dir, assets: Assets{s.Assets, s.OCM}, local: s.Local, AgentPort: s.AgentPort, Managed: map[string]*Cluster{}}
	for _, name := range append([]string{hubName}, s.Clusters...) {
		c := &Cluster{Name: name, dir: filepath.Join(dir, name), logs: filepath.Join(dir, "logs")}
		c.KubeconfigPath = c.file("admin.kubeconfig")
		if err := c.loadConfig(); err != nil {
			return nil, err
		}
		if name == hubName {
			l.Hub = c
		} else {
			l.Managed[name] = c
		}
	}
	return l, l.openNodes()
}

func readState(dir string) (state, error) {
	var s state
	raw, err := os.ReadFile(stateFile(dir))
	if errors.Is(err, os.ErrNotExist) {
		return s, fmt.Errorf("no lab runs in %s; start one with lab up", dir)
	}
	if err == nil {
		err = json.Unmarshal(raw, &s)
	}
	return s, err
}

// alive reports whether the process that wrote the state is still there.
func (s state) alive() bool {
	return s.Command != "" && commandLine(s.PID) == s.Command
}

// commandLine is that of a process, or empty if there is none.
func commandLine(pid int) string {
	if pid <= 0 {
		return ""
	}
	out, err := exec.Command("ps", "-ww", "-o", "args=", "-p", fmt.Sprint(pid)).Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

// Down stops the lab that runs in the background in dir and removes its files.
// It is no error if there is none.
func Down(dir string) error {
	s, err := readState(dir)
	if err != nil {
		return removeDead(dir)
	}
	if s.alive() {
		if err := syscall.Kill(s.PID, syscall.SIGTERM); err != nil {
			return fmt.Errorf("stopping the lab in %s: %w", dir, err)
		}
		deadline := time.Now().Add(time.Minute)
		for s.alive() {
			if time.Now().After(deadline) {
				return fmt.Errorf("stopping the lab in %s: process %d is still there after a minute", dir, s.PID)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	for _, file := range []string{stateFile(dir), programFile(dir)} {
		if err := os.Remove(file); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return removeDead(dir)
}

// removeDead removes the files of a lab that is not running. A folder that does
// not look like a lab's is left alone.
func removeDead(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil
	}
	if _, err := os.Stat(filepath.Join(dir, hubName)); err != nil {
		return fmt.Errorf("%s is not empty and not a lab's folder; choose another one", dir)
	}
	if err := stopNodes(dir); err != nil {
		return fmt.Errorf("removing what the lab in %s left: %w", dir, err)
	}
	return os.RemoveAll(dir)
}
