package query

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxWord is how many bytes of a word count. Longer ones are equal if their beginnings are.
const maxWord = 64

// Words returns the words of a text: its letters and digits in sequence, in small letters.
func Words(text string) []string {
	words := strings.FieldsFunc(text, func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsNumber(r) && !unicode.IsMark(r)
	})
	for i, word := range words {
		word = strings.ToLower(word)
		if len(word) > maxWord {
			word = strings.ToValidUTF8(word[:maxWord], "")
		}
		words[i] = word
	}
	return words
}
