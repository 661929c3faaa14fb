package query

import "strings"

// Value is one value of a key: a text, or a pattern in which * stands for any text and ? for a
// character.
type Value string

// IsPattern reports whether the value is a pattern.
func (v Value) IsPattern() bool { return strings.ContainsAny(string(v), "*?") }

// Match reports whether a text matches, in any case.
func (v Value) Match(text string) bool {
	return match(strings.ToLower(string(v)), strings.ToLower(text))
}

// match goes back to the last * only, so it takes no more than len(pattern)*len(text) steps.
func match(pattern, text string) bool {
	p, t, star, from := 0, 0, -1, 0
	runes, wanted := []rune(text), []rune(pattern)
	for t < len(runes) {
		switch {
		case p < len(wanted) && wanted[p] == '*':
			star, from = p, t
			p++
		case p < len(wanted) && (wanted[p] == '?' || wanted[p] == runes[t]):
			p++
			t++
		case star >= 0:
			from++
			p, t = star+1, from
		default:
			return false
		}
	}
	return strings.Trim(string(wanted[p:]), "*") == ""
}

// Like returns the value as a pattern of SQL's LIKE with the escape character \, in small letters.
func (v Value) Like() string { return like.Replace(strings.ToLower(string(v))) }

var like = strings.NewReplacer(`\`, `\\`, "%", `\%`, "_", `\_`, "*", "%", "?", "_")
