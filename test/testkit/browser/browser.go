// Package browser drives a headless Chromium by the DevTools protocol, over pipes. It
// verifies TLS: the profile has the CAs that a test gives it, and ignores no error.
package browser

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"open-cluster-management.io/cluster-proxy/test/testkit/wait"
)

// answerWithin is how long a command may take. A page that loads has its own wait.
const answerWithin = time.Minute

// conditions says how to wait for what a page becomes.
var conditions = wait.Poll{Every: 50 * time.Millisecond, For: 2 * time.Minute}

// Request is one that a page sent.
type Request struct {
	URL, Method string
	Headers     map[string]string
}

// Page is the one tab of a browser.
type Page struct {
	t       testing.TB
	in      io.Writer
	session string

	mu       sync.Mutex
	last     int
	waiting  map[int]chan message
	requests []Request
	problems []string
}

type message struct {
	ID        int             `json:"id,omitempty"`
	SessionID string          `json:"sessionId,omitempty"`
	Method    string          `json:"method,omitempty"`
	Params    json.RawMessage `json:"params,omitempty"`
	Result    json.RawMessage `json:"result,omitempty"`
	Error     *struct {
		Message string `json:"message"`
	} `json:"error,omitempty"`
}

// Needs skips a test on a machine that lacks Debian's packages chromium and
// libnss3-tools. In CI it fails there.
func Needs(t testing.TB) {
	t.Helper()
	needs(t, "chromium", "certutil")
}

func needs(t testing.TB, programs ...string) {
	t.Helper()
	for _, program := range programs {
		if _, err := exec.LookPath(program); err != nil {
			if os.Getenv("CI") == "true" && os.Getuid() == 0 {
				t.Fatalf("%v; .ci/run installs it: apt-get install chromium libnss3-tools openssl", err)
			}
			t.Skipf("NOT RUN: %v; apt-get install chromium libnss3-tools openssl", err)
		}
	}
}

// Open starts a browser with a profile that trusts the CAs in PEM files, until the test
// ends.
func Open(t testing.TB, caFiles ...string) *Page {
	t.Helper()
	Needs(t)
	home := t.TempDir()
	trust(t, home, caFiles)
	return start(t, home)
}

// start starts a browser whose home has the certificates.
func start(t testing.TB, home string) *Page {
	t.Helper()
	command := exec.Command("chromium", "--headless=new", "--remote-debugging-pipe", "--user-data-dir="+filepath.Join(home, "profile"),
		"--no-first-run", "--disable-gpu", "--disable-dev-shm-usage", "--disable-background-networking", "--disable-component-update", "--disable-sync",
		"--disable-extensions", "--no-proxy-server", "--window-size=1440,900", "about:blank")
	if os.Getuid() == 0 {
		command.Args = append(command.Args, "--no-sandbox") // which root cannot have
	}
	command.Env = append(os.Environ(), "HOME="+home)
	ours, theirs := pipes(t), pipes(t)
	command.ExtraFiles = []*os.File{ours[0], theirs[1]}
	if err := command.Start(); err != nil {
		t.Fatalf("starting chromium: %v", err)
	}
	ours[0].Close()
	theirs[1].Close()
	p := &Page{t: t, in: ours[1], waiting: map[int]chan message{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.read(theirs[0])
	}()
	t.Cleanup(func() {
		ours[1].Close() // at which it ends
		over := time.AfterFunc(10*time.Second, func() { _ = command.Process.Kill() })
		_ = command.Wait()
		over.Stop()
		theirs[0].Close()
		<-ended
	})
	p.attach()
	return p
}

func pipes(t testing.TB) [2]*os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	return [2]*os.File{r, w}
}

// trust adds CAs to the NSS database in which Chromium looks on Linux.
func trust(t testing.TB, home string, caFiles []string) {
	t.Helper()
	dir := filepath.Join(home, ".pki", "nssdb")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	run(t, "certutil", "-d", "sql:"+dir, "-N", "--empty-password")
	for i, file := range caFiles {
		run(t, "certutil", "-d", "sql:"+dir, "-A", "-t", "C,,", "-n", fmt.Sprintf("ca-%d", i), "-i", file)
	}
}

func run(t testing.TB, program string, args ...string) {
	t.Helper()
	if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
}

// attach finds the tab and listens to what it does.
func (p *Page) attach() {
	p.t.Helper()
	var targets struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	conditions.Success(p.t, "a tab", func() error {
		p.Call("Target.getTargets", nil, &targets)
		for _, target := range targets.TargetInfos {
			if target.Type == "page" {
				return nil
			}
		}
		return errors.New("there is none")
	})
	for _, target := range targets.TargetInfos {
		if target.Type == "page" && p.session == "" {
			var attached struct{ SessionID string }
			p.Call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
			p.session = attached.SessionID
		}
	}
	for _, domain := range []string{"Page", "Network", "Runtime", "Log"} {
		p.Call(domain+".enable", nil, nil)
	}
}

func (p *Page) read(from io.Reader) {
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(line[:len(line)-1], &m) != nil {
			continue
		}
		p.mu.Lock()
		if waiting := p.waiting[m.ID]; m.ID != 0 && waiting != nil {
			delete(p.waiting, m.ID)
			waiting <- m
		}
		p.note(m)
		p.mu.Unlock()
	}
}

func (p *Page) note(m message) {
	switch m.Method {
	case "Network.requestWillBeSent":
		var event struct{ Request Request }
		_ = json.Unmarshal(m.Params, &event)
		p.requests = append(p.requests, event.Request)
	case "Runtime.exceptionThrown":
		p.problems = append(p.problems, string(m.Params))
	case "Log.entryAdded":
		var event struct {
			Entry struct{ Source, Level, Text, URL string }
		}
		_ = json.Unmarshal(m.Params, &event)
		// An answer that is an error is noted too, and is no problem of the page.
		if event.Entry.Source != "network" && event.Entry.Level != "info" && event.Entry.Level != "verbose" {
			p.problems = append(p.problems, event.Entry.Source+": "+event.Entry.Text)
		}
	}
}

// Call sends a command and decodes its result into out, unless that is nil.
func (p *Page) Call(method string, params, out any) {
	p.t.Helper()
	if params == nil {
		params = struct{}{}
	}
	encoded, err := json.Marshal(params)
	if err != nil {
		p.t.Fatal(err)
	}
	answer := make(chan message, 1)
	p.mu.Lock()
	p.last++
	id := p.last
	p.waiting[id] = answer
	p.mu.Unlock()
	command, err := json.Marshal(message{ID: id, SessionID: p.session, Method: method, Params: encoded})
	if err != nil {
		p.t.Fatal(err)
	}
	if _, err := p.in.Write(append(command, 0)); err != nil {
		p.t.Fatalf("%s: %v", method, err)
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			p.t.Fatalf("%s: %s", method, m.Error.Message)
		}
		if out != nil {
			if err := json.Unmarshal(m.Result, out); err != nil {
				p.t.Fatalf("%s: %v: %s", method, err, m.Result)
			}
		}
	case <-time.After(answerWithin):
		p.t.Fatalf("%s: no answer within %s", method, answerWithin)
	}
}

// Go opens a URL.
func (p *Page) Go(url string) {
	p.t.Helper()
	var opened struct{ ErrorText string }
	p.Call("Page.navigate", map[string]any{"url": url}, &opened)
	if opened.ErrorText != "" {
		p.t.Fatalf("opening %s: %s", url, opened.ErrorText)
	}
}

// Eval returns the JSON of an expression's value.
func (p *Page) Eval(expression string) string {
	p.t.Helper()
	var answer struct {
		Result struct {
			Value json.RawMessage
		}
		ExceptionDetails *struct {
			Exception struct{ Description string }
		}
	}
	p.Call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true}, &answer)
	if answer.ExceptionDetails != nil {
		p.t.Fatalf("%s: %s", expression, answer.ExceptionDetails.Exception.Description)
	}
	return string(answer.Result.Value)
}

// WaitFor waits until an expression is true.
func (p *Page) WaitFor(expression string) {
	p.t.Helper()
	conditions.Success(p.t, expression, func() error {
		if got := p.Eval(expression); got != "true" {
			return fmt.Errorf("it is %s; the page says: %s", got, p.Eval(`document.body?.innerText.slice(0, 600) ?? ""`))
		}
		return nil
	})
}

// Type writes into the element that has the focus.
func (p *Page) Type(text string) {
	p.t.Helper()
	p.Call("Input.insertText", map[string]any{"text": text}, nil)
}

// Press presses a key, such as Enter or ArrowDown.
func (p *Page) Press(key string) {
	p.t.Helper()
	down := map[string]any{"type": "keyDown", "key": key, "code": key}
	switch {
	case key == "Enter":
		down["text"], down["windowsVirtualKeyCode"] = "\r", 13
	case len(key) == 1:
		down["text"] = key
	}
	p.Call("Input.dispatchKeyEvent", down, nil)
	p.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key, "code": key}, nil)
}

// Screenshot is a picture of a window of so many pixels, as PNG.
func (p *Page) Screenshot(width, height int) string {
	p.t.Helper()
	p.Call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}, nil)
	var answer struct{ Data []byte }
	p.Call("Page.captureScreenshot", map[string]any{"format": "png"}, &answer)
	return string(answer.Data)
}

// Requests are those so far whose URL has a text.
func (p *Page) Requests(text string) (found []Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		if strings.Contains(r.URL, text) {
			found = append(found, r)
		}
	}
	return found
}

// Problems are exceptions, warnings and violations of policies so far.
func (p *Page) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.problems...)
}
