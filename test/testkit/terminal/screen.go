package terminal

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// screen is what a terminal shows of what a program writes: text at places, without colours.
type screen struct {
	lines [Rows][Cols]rune
	y, x  int
	// pending is the beginning of a sequence or of a character.
	pending []byte
}

func newScreen() *screen {
	s := &screen{}
	s.erase(0, 0, Rows-1, Cols-1)
	return s
}

func (s *screen) String() string {
	var text strings.Builder
	for _, line := range s.lines {
		text.WriteString(strings.TrimRight(string(line[:]), " ") + "\n")
	}
	return strings.TrimRight(text.String(), "\n") + "\n"
}

// write draws bytes. A sequence may be cut anywhere.
func (s *screen) write(p []byte) {
	s.pending = append(s.pending, p...)
	for len(s.pending) > 0 {
		n := s.next(s.pending)
		if n == 0 {
			return // the rest comes
		}
		s.pending = s.pending[n:]
	}
}

// next draws one character or obeys one sequence, and returns its length; 0 if it is not whole.
func (s *screen) next(p []byte) int {
	switch p[0] {
	case 0x1b:
		return s.escape(p)
	case '\r':
		s.x = 0
	case '\n':
		s.feed()
	case '\b':
		s.x = max(0, s.x-1)
	case '\t':
		s.x = min(Cols-1, s.x/8*8+8)
	default:
		if p[0] < ' ' {
			return 1
		}
		if !utf8.FullRune(p) {
			return 0
		}
		r, n := utf8.DecodeRune(p)
		if s.x >= Cols {
			s.x = 0
			s.feed()
		}
		s.lines[s.y][s.x] = r
		s.x++
		return n
	}
	return 1
}

// feed goes to the next line.
func (s *screen) feed() {
	if s.y < Rows-1 {
		s.y++
		return
	}
	copy(s.lines[:], s.lines[1:])
	s.erase(Rows-1, 0, Rows-1, Cols-1)
}

// escape obeys a sequence that begins with Escape.
func (s *screen) escape(p []byte) int {
	if len(p) < 2 {
		return 0
	}
	switch p[1] {
	case '[':
		for i := 2; i < len(p); i++ {
			if p[i] >= 0x40 && p[i] <= 0x7e {
				s.control(string(p[2:i]), p[i])
				return i + 1
			}
		}
		return 0
	case ']', 'P', '_', '^': // a string, which ends with a bell or with Escape and a backslash
		for i := 2; i < len(p); i++ {
			if p[i] == 0x07 {
				return i + 1
			}
			if p[i] == 0x1b && i+1 < len(p) {
				return i + 2
			}
		}
		return 0
	case '(', ')', '#':
		if len(p) < 3 {
			return 0
		}
		return 3
	}
	return 2
}

// control obeys a control sequence.
func (s *screen) control(parameters string, final byte) {
	numbers := strings.Split(strings.TrimLeft(parameters, "?>="), ";")
	number := func(i, otherwise int) int {
		if i < len(numbers) {
			if n, err := strconv.Atoi(numbers[i]); err == nil && n > 0 {
				return n
			}
		}
		return otherwise
	}
	switch final {
	case 'H', 'f':
		s.y, s.x = number(0, 1)-1, number(1, 1)-1
	case 'A':
		s.y -= number(0, 1)
	case 'B':
		s.y += number(0, 1)
	case 'C':
		s.x += number(0, 1)
	case 'D':
		s.x -= number(0, 1)
	case 'G':
		s.x = number(0, 1) - 1
	case 'd':
		s.y = number(0, 1) - 1
	case 'J':
		s.eraseScreen(number(0, 0))
	case 'K':
		s.eraseLine(number(0, 0))
	case 'X':
		s.erase(s.y, s.x, s.y, min(Cols, s.x+number(0, 1))-1)
	case 'h':
		if parameters == "?1049" { // another screen, which is empty
			s.erase(0, 0, Rows-1, Cols-1)
		}
	}
	s.y, s.x = min(max(s.y, 0), Rows-1), min(max(s.x, 0), Cols)
}

func (s *screen) eraseScreen(what int) {
	switch what {
	case 0:
		s.erase(s.y, s.x, Rows-1, Cols-1)
	case 1:
		s.erase(0, 0, s.y, s.x)
	default:
		s.erase(0, 0, Rows-1, Cols-1)
	}
}

func (s *screen) eraseLine(what int) {
	switch what {
	case 0:
		s.erase(s.y, s.x, s.y, Cols-1)
	case 1:
		s.erase(s.y, 0, s.y, s.x)
	default:
		s.erase(s.y, 0, s.y, Cols-1)
	}
}

// erase makes blanks from one place to another, line by line as text runs.
func (s *screen) erase(y, x, toY, toX int) {
	for at := y*Cols + x; at <= min(toY*Cols+toX, Rows*Cols-1); at++ {
		s.lines[at/Cols][at%Cols] = ' '
	}
}
