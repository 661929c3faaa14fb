package proxyapi

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"net/url"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/remotecommand"
)

// BenchmarkRecording has what recording costs beside none, to a volume and to a Service: of output in bulk, and of a key's
// echo. CPU is that of all ends, which are in this process.
func BenchmarkRecording(b *testing.B) {
	text := bytes.Repeat([]byte("drwxr-xr-x  2 root root     4096 Nov 23 19:07 \x1b[01;34mpage\x1b[0m\r\n"), 16<<20/67)
	random := make([]byte, 16<<20)
	_, _ = rand.Read(random)
	for _, policy := range []string{"none", "fail open", "fail closed", "to a Service"} {
		dir := b.TempDir()
		_, leadTo := startRecordingService(b)
		w := start(b, func(o *Options) {
			switch policy {
			case "none":
			case "to a Service":
				leadTo(o)
				o.Recording.FailClosed = true
			default:
				o.Recording.Dir, o.Recording.FailClosed = dir, policy == "fail closed"
			}
		})
		w.api.User("jane", "jane")
		w.api.Allow(sessionRights...)
		for what, out := range map[string][]byte{"text": text, "random": random} {
			w.agent("cluster1", kubeAPIServerOf(b, (&shell{out: out}).ServeHTTP), "cluster1")
			for name, how := range executors {
				b.Run(what+"/"+name+"/"+policy, func(b *testing.B) {
					b.SetBytes(int64(len(out)))
					before := cpuTime(b)
					for b.Loop() {
						if stdout, _, err := w.exec(how, execPath, "", false); err != nil || len(stdout) != len(out) {
							b.Fatal(len(stdout), err)
						}
					}
					b.ReportMetric(float64(cpuTime(b)-before)/1e6/float64(b.N)/float64(len(out)>>20), "cpu-ms/MiB")
				})
			}
		}
		for name, how := range executors {
			b.Run("key/"+name+"/"+policy, func(b *testing.B) { benchmarkKey(b, w, how) })
		}
		w.stop()
		if err := w.ended(); err != nil {
			b.Error(err)
		}
	}
}

// benchmarkKey has the time from a key to its echo.
func benchmarkKey(b *testing.B, w *world, how executor) {
	u, err := url.Parse(w.url + "/cluster1" + execPath + "?stdin=true&stdout=true&tty=true")
	if err != nil {
		b.Fatal(err)
	}
	e, err := how(w.config("jane"), http.MethodPost, u)
	if err != nil {
		b.Fatal(err)
	}
	stdin, keys := io.Pipe()
	screen, stdout := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		ended <- e.StreamWithContext(context.Background(), remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Tty: true, TerminalSizeQueue: terminalSizes()})
	}()
	key := []byte("x")
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := keys.Write(key); err != nil {
			b.Fatal(err)
		}
		if _, err := io.ReadFull(screen, key); err != nil {
			b.Fatal(err)
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
	keys.Close()
	go func() { _, _ = io.Copy(io.Discard, screen) }()
	if err := <-ended; err != nil {
		b.Fatal(err)
	}
	stdout.Close()
}

// cpuTime is what this process has used so far, in ns.
func cpuTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
