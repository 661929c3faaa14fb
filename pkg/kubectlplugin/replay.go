package kubectlplugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"open-cluster-management.io/cluster-proxy/pkg/kubectlplugin/cli"
	"open-cluster-management.io/cluster-proxy/pkg/recording"
)

// replay plays a recording back.
type replay struct {
	speed float64
	idle  time.Duration
	raw   bool
	// out and errs get what the user saw, byte by byte.
	out, errs io.Writer
	// says is for what is not of the user's session.
	says io.Writer
	// pause waits.
	pause func(context.Context, time.Duration) error
}

func replayCommand(p *cli.Factory) *cobra.Command {
	r := replay{says: p.Err, out: p.Bytes, errs: p.ByteErr, pause: pause}
	cmd := &cobra.Command{
		Use:   "replay FILE",
		Short: "Play back what a user saw in a session of exec or attach that the proxy API recorded",
		Long: `Play back what a user saw in a session of exec or attach that the proxy API recorded. FILE is a recording, or - for standard input.

Output is written byte for byte as the user got it: of a terminal to standard output, otherwise to standard output and standard
error. It contains whatever the session contained, such as sequences that control your terminal. Standard error also has the
session's user, cluster and pod at the beginning, and at the end why the recording ends, unless --raw is given. The user's input is in the
file only if the proxy API records it, and is not played.

If bytes are missing or the end is, the command says so and exits with status 1. The hub is not asked. asciinema plays these files, too.`,
		Example: "  kubectl clusterproxy replay 2026-11-23/225301-5cfa3024809daec2f0eff1920966c5ef.cast --idle-limit 2s\n  kubectl clusterproxy replay --raw FILE > out.txt",
		Args:    cli.Arguments(1, 1),
		PreRunE: func(*cobra.Command, []string) error {
			if !(r.speed > 0) {
				return fmt.Errorf("--speed is %v: it must be more than 0", r.speed)
			}
			if r.idle < 0 {
				return fmt.Errorf("--idle-limit is %v: it must not be less than 0", r.idle)
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == "-" {
				return r.play(cmd.Context(), cmd.InOrStdin())
			}
			file, err := os.Open(args[0])
			if err != nil {
				return fmt.Errorf("opening the recording: %w", err)
			}
			defer file.Close()
			return r.play(cmd.Context(), file)
		},
	}
	cmd.Flags().Float64Var(&r.speed, "speed", 1, "how many times as fast as it was")
	cmd.Flags().DurationVar(&r.idle, "idle-limit", 0, "the longest pause; 0 means as long as they were")
	cmd.Flags().BoolVar(&r.raw, "raw", false, "write the bytes of the session at once, and nothing else")
	return cmd
}

// pause waits for a time, or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (r *replay) play(ctx context.Context, from io.Reader) error {
	reader, err := recording.NewReader(from)
	if err != nil {
		return err
	}
	if !r.raw {
		r.sayHeader(&reader.Header)
	}
	var missing []string
	var last time.Duration
	for {
		event, err := reader.Next()
		switch {
		case errors.Is(err, io.EOF):
			return r.sayMissing(missing)
		case errors.Is(err, recording.ErrCut):
			return r.sayMissing(append(missing, "its end, because the session is open, or the process that recorded it was killed"))
		case err != nil:
			return err
		}
		if err := r.wait(ctx, event.At-last); err != nil {
			return err
		}
		last = max(last, event.At)
		switch {
		case event.Lost != "":
			missing = append(missing, "bytes of "+event.Lost)
		case event.End != "" && !r.raw:
			fmt.Fprintf(r.says, "\nThe end after %s: %s\n", event.At.Round(time.Millisecond), cli.OneLine(event.End))
		case event.Stream == recording.Output:
			_, err = r.out.Write(event.Data)
		case event.Stream == recording.ErrorOutput:
			_, err = r.errs.Write(event.Data)
		}
		if err != nil {
			return fmt.Errorf("writing what the user saw: %w", err)
		}
	}
}

// wait waits as long as the session did, within the limits.
func (r *replay) wait(ctx context.Context, since time.Duration) error {
	if r.idle > 0 {
		since = min(since, r.idle)
	}
	if r.raw || since <= 0 {
		return ctx.Err()
	}
	return r.pause(ctx, time.Duration(float64(since)/r.speed))
}

// sayHeader says whose session it was. Names are as users and clusters have chosen them.
func (r *replay) sayHeader(h *recording.Header) {
	s := &h.Session
	if s.Name == "" {
		fmt.Fprintln(r.says, "A recording of another program.")
		return
	}
	user := s.User
	if user == "" {
		user = "a user whom the hub does not know"
	}
	began := time.Unix(h.Time, 0).UTC().Format(time.RFC3339)
	fmt.Fprintf(r.says, "%s of %s to %s of cluster %s, session %s at %s\n", cli.OneLine(s.Kind), cli.OneLine(user), cli.OneLine(s.Target), cli.OneLine(s.Cluster), cli.OneLine(s.Name), began)
}

// sayMissing says what the recording does not have.
func (r *replay) sayMissing(missing []string) error {
	if len(missing) == 0 {
		return nil
	}
	for i := range missing {
		missing[i] = cli.OneLine(missing[i])
	}
	fmt.Fprintln(r.says, "The recording is not complete. Missing:", strings.Join(missing, ", "))
	return cli.ErrNotGood
}
