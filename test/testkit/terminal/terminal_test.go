package terminal

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
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

// A recording has no long pauses, and its pictures show each screen from its time until the next.
func TestRecording(t *testing.T) {
	r := Recording{{0, "$ "}, {time.Second, "ls\r\n"}, {time.Minute, "a<b\r\n"}, {time.Minute + time.Millisecond, "$ "}}
	if got, want := r.Asciicast("list"), `{"height":40,"title":"list","version":2,"width":160}
[0,"o","$ "]
[1,"o","ls\r\n"]
[2.5,"o","a\u003cb\r\n"]
[2.501,"o","$ "]
`; got != want {
		t.Errorf("got\n%s, want\n%s", got, want)
	}
	want := []frame{{0, "$\n"}, {time.Second, "$ ls\n"}, {2500 * time.Millisecond, "$ ls\na<b\n$\n"}}
	if got := r.frames(); !slices.Equal(got, want) {
		t.Errorf("got frames %v, want %v", got, want)
	}
	quick := Recording{{0, "a"}, {500 * time.Millisecond, "b"}, {550 * time.Millisecond, "c"}}
	if got, want := quick.frames(), []frame{{0, "a\n"}, {shortestFrame, "abc\n"}}; !slices.Equal(got, want) {
		t.Errorf("a quick program has frames %v, want %v", got, want)
	}
	svg := r.SVG("a & b")
	for _, want := range []string{"<title>a &amp; b</title>", ">a&lt;b</text>", `dur="7.50s" repeatCount="indefinite" values="hidden;visible;hidden" keyTimes="0;0.1333;0.3333"`} {
		if !strings.Contains(svg, want) {
			t.Errorf("the picture lacks %s:\n%s", want, svg)
		}
	}
	if strings.Count(svg, "<g visibility") != len(want) {
		t.Errorf("not %d frames:\n%s", len(want), svg)
	}
}
