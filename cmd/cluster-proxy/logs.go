package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"
)

const (
	// maxQueuedLines bounds the lines of the log that wait for a slow reader.
	maxQueuedLines = 1000
	// lastWords is how long the end of the process waits for the log's reader.
	lastWords = time.Second
)

// lineWriter is an io.Writer that never waits: a goroutine writes to out, and
// what out does not take in time is dropped and counted. klog holds a lock while
// it writes, so a full pipe or a file system without space would otherwise stop
// each goroutine that logs, and those serve connections.
type lineWriter struct {
	out     io.Writer
	lines   chan []byte
	dropped atomic.Int64
	idle    chan chan struct{} // asks for an answer when nothing is left to write
}

func newLineWriter(out io.Writer) *lineWriter {
	w := &lineWriter{out: out, lines: make(chan []byte, maxQueuedLines), idle: make(chan chan struct{})}
	go w.run()
	return w
}

func (w *lineWriter) Write(line []byte) (int, error) {
	select {
	case w.lines <- bytes.Clone(line):
	default:
		w.dropped.Add(1)
	}
	return len(line), nil
}

func (w *lineWriter) run() {
	for {
		select {
		case line := <-w.lines:
			w.write(line)
		case done := <-w.idle:
			for range len(w.lines) {
				w.write(<-w.lines)
			}
			close(done)
		}
	}
}

func (w *lineWriter) write(line []byte) {
	_, _ = w.out.Write(line)
	if n := w.dropped.Swap(0); n > 0 {
		fmt.Fprintf(w.out, "(%d lines of this log were dropped: what reads it is too slow)\n", n)
	}
}

// flush waits until everything is written, but no longer than lastWords.
func (w *lineWriter) flush() {
	limit := time.After(lastWords)
	done := make(chan struct{})
	select {
	case w.idle <- done:
	case <-limit:
		return
	}
	select {
	case <-done:
	case <-limit:
	}
}

// logTo has klog write each line once, to w and nowhere else.
func logTo(w io.Writer) error {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klog.InitFlags(flags)
	for name, value := range map[string]string{"logtostderr": "false", "alsologtostderr": "false", "stderrthreshold": "FATAL", "one_output": "true"} {
		if err := flags.Set(name, value); err != nil {
			return fmt.Errorf("setting klog's --%s: %w", name, err)
		}
	}
	klog.SetOutput(w)
	return nil
}

// logFormat is the value of --logging-format.
type logFormat string

const (
	logText logFormat = "text"
	logJSON logFormat = "json"
)

func (f *logFormat) String() string { return string(*f) }

// Type is what help calls the value.
func (*logFormat) Type() string { return "format" }

// Set is part of pflag.Value.
func (f *logFormat) Set(value string) error {
	switch format := logFormat(value); format {
	case logText, logJSON:
		*f = format
		return nil
	}
	return fmt.Errorf("%q must be %s or %s", value, logText, logJSON)
}

// logJSONTo has klog write JSON to w.
func logJSONTo(w io.Writer) {
	klog.SetSlogLogger(slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: verbosity{}})))
}

// verbosity returns klog's current verbosity, which the addon manager may have lowered
// below --v.
type verbosity struct{}

// Level is part of slog.Leveler. slog's levels below 0 are klog's above 0.
func (verbosity) Level() slog.Level {
	for v := klog.Level(10); v > 0; v-- {
		if klog.V(v).Enabled() {
			return slog.Level(-v)
		}
	}
	return slog.LevelInfo
}
