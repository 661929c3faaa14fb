package terminal

import (
	"encoding/json"
	"fmt"
	"html"
	"strings"
	"time"
)

// Recording is what a program wrote into its terminal, and when.
type Recording []output

// output is what came at a time after the program's start.
type output struct {
	at   time.Duration
	text string
}

const (
	// longestPause is how long nothing happens in a recording.
	longestPause = 1500 * time.Millisecond
	// shortestFrame is how long each screen of a picture is shown, for people to read it, and
	// lastFrame the last one before the picture begins anew.
	shortestFrame = 800 * time.Millisecond
	lastFrame     = 5 * time.Second
	// together is the time in which what is written belongs to one screen.
	together = 400 * time.Millisecond
)

// Recording is what was written so far.
func (t *Terminal) Recording() Recording {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(Recording(nil), t.written...)
}

// Replace is the recording with other texts, such as for names of this machine's folders. It
// does not find a text that was written in two parts.
func (r Recording) Replace(texts *strings.Replacer) Recording {
	other := make(Recording, len(r))
	for i, o := range r {
		other[i] = output{o.at, texts.Replace(o.text)}
	}
	return other
}

// shortened has no pause that is longer than longestPause.
func (r Recording) shortened() Recording {
	short := make(Recording, len(r))
	var now, cut time.Duration
	for i, o := range r {
		cut += max(0, o.at-now-longestPause)
		now = o.at
		short[i] = output{o.at - cut, o.text}
	}
	return short
}

// Asciicast is the recording as a file of asciinema, version 2:
// https://docs.asciinema.org/manual/asciicast/v2/.
func (r Recording) Asciicast(title string) string {
	var file strings.Builder
	lines := json.NewEncoder(&file)
	_ = lines.Encode(map[string]any{"version": 2, "width": Cols, "height": Rows, "title": title}) // to memory
	for _, o := range r.shortened() {
		_ = lines.Encode([]any{o.at.Seconds(), "o", o.text})
	}
	return file.String()
}

// frame is a screen that is shown from a time on.
type frame struct {
	at     time.Duration
	screen string
}

// frames are the screens of a recording, each shown for long enough.
func (r Recording) frames() (frames []frame) {
	screen := newScreen()
	var drawn, later time.Duration
	for _, o := range r.shortened() {
		screen.write([]byte(o.text))
		text := screen.String()
		switch last := len(frames) - 1; {
		case last >= 0 && frames[last].screen == text:
		case last >= 0 && o.at-drawn < together:
			frames[last].screen = text
		default:
			if last >= 0 {
				later = max(later, frames[last].at+shortestFrame-o.at)
			}
			drawn = o.at
			frames = append(frames, frame{o.at + later, text})
		}
	}
	return frames
}

// SVG is the recording as a picture that moves, and begins anew at its end. Where nothing moves, it
// shows the last screen.
func (r Recording) SVG(title string) string {
	const letter, line, border = 8, 18, 12 // in pixels, with the font below
	frames := r.frames()
	if len(frames) == 0 {
		return ""
	}
	rows, cols := 1, 80
	for _, f := range frames {
		lines := strings.Split(strings.TrimSuffix(f.screen, "\n"), "\n")
		rows = max(rows, len(lines))
		for _, text := range lines {
			cols = max(cols, len([]rune(text)))
		}
	}
	whole := (frames[len(frames)-1].at + lastFrame).Seconds()
	width, height := cols*letter+2*border, rows*line+2*border
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img">`+"\n<title>%s</title>\n", width, height, width, height, html.EscapeString(title))
	fmt.Fprintf(&svg, `<rect width="100%%" height="100%%" rx="6" fill="#0d1117"/>`+"\n"+`<g font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13" fill="#e6edf3">`+"\n")
	for i, f := range frames {
		begin, end := f.at.Seconds()/whole, 1.0
		shown := "hidden"
		if i+1 < len(frames) {
			end = frames[i+1].at.Seconds() / whole
		} else {
			shown = "visible"
		}
		fmt.Fprintf(&svg, `<g visibility="%s"><animate attributeName="visibility" calcMode="discrete" dur="%.2fs" repeatCount="indefinite" values="hidden;visible;hidden" keyTimes="0;%.4f;%.4f"/>`+"\n", shown, whole, begin, end)
		for y, text := range strings.Split(strings.TrimSuffix(f.screen, "\n"), "\n") {
			if text != "" {
				fmt.Fprintf(&svg, `<text x="%d" y="%d" textLength="%d">%s</text>`+"\n", border, border+line*y+line*3/4, len([]rune(text))*letter, strings.ReplaceAll(html.EscapeString(text), " ", "\u00a0"))
			}
		}
		svg.WriteString("</g>\n")
	}
	svg.WriteString("</g>\n</svg>\n")
	return svg.String()
}
