package terminal

import (
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"
)

// A screen shows what is written where the cursor is, and not what was erased or overwritten.
func TestScreen(t *testing.T) {
	for _, test := range []struct{ name, written, want string }{
		{"lines", "one\r\ntwo", "one\ntwo\n"},
		{"places", "\x1b[2;3Htwo\x1b[1;1H\x1b[1;31mone\x1b[0m", "one\n  two\n"},
		{"overwritten", "12345\rab", "ab345\n"},
		{"erased", "12345\r12\x1b[K", "12\n"},
		{"screen erased", "old\x1b[2J\x1b[Hnew", "new\n"},
		{"characters", "12345\x1b[1;2H\x1b[3X", "1   5\n"},
		{"title", "\x1b]0;title\x07text", "text\n"},
		{"a title to a backslash", "\x1b]0;title\x1b\\text", "text\n"},
		{"another screen", "old\x1b[?1049h\x1b[Hnew", "new\n"},
		{"Unicode", "│ é", "│ é\n"},
	} {
		whole, cut := newScreen(), newScreen()
		whole.write([]byte(test.written))
		for i := range len(test.written) {
			cut.write([]byte{test.written[i]})
		}
		if got := whole.String(); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
		if got := cut.String(); got != test.want {
			t.Errorf("%s, byte by byte: %q, want %q", test.name, got, test.want)
		}
	}
	long := newScreen()
	long.write([]byte(strings.Repeat("x\r\n", Rows) + "end"))
	if got := strings.Count(long.String(), "x"); got != Rows-1 || !strings.HasSuffix(long.String(), "end\n") {
		t.Errorf("%d lines and the end are on a full screen, want %d: %s", got, Rows-1, long)
	}
}

func TestTerminal(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs Linux")
	}
	cmd := exec.Command("sh", "-c", `test -t 0 && stty size && read line && echo "read $line" && read line`)
	cmd.Env = os.Environ()
	terminal, err := Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	defer terminal.Close()
	if screen, err := terminal.Await(t.Context(), time.Minute, "40 160"); err != nil {
		t.Fatalf("%v: %s", err, screen)
	}
	if err := terminal.Type("typed\r"); err != nil {
		t.Fatal(err)
	}
	if screen, err := terminal.Await(t.Context(), time.Minute, "read typed"); err != nil {
		t.Errorf("%v: %s", err, screen)
	}
}
