package cli

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgress is of commands that are quick, that are slow, and that nobody looks at.
func TestProgress(t *testing.T) {
	for name, test := range map[string]struct {
		interactive bool
		each        time.Duration
		want        string
	}{
		"quick":           {true, progressAfter / 4, ""},
		"slow":            {true, progressAfter - 1, "step 2 …\nstep 3 …\n"},
		"no terminal":     {false, time.Minute, ""},
		"one slow answer": {true, time.Minute, "step 1 …\nstep 2 …\nstep 3 …\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var said bytes.Buffer
				progress := (&Factory{Err: &said, interactive: test.interactive}).StartProgress()
				for _, step := range []string{"step 1", "step 2", "step 3"} {
					progress.Doing(step)
					time.Sleep(test.each)
					synctest.Wait()
				}
				progress.Done()
				progress.Doing("after the end")
				if said.String() != test.want {
					t.Errorf("it says %q, want %q", said.String(), test.want)
				}
			})
		})
	}
}
