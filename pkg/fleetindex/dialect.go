package fleetindex

import (
	"strconv"
	"strings"

	"open-cluster-management.io/cluster-proxy/pkg/fleetindex/query"
)

// dialect is what differs between the engines. All other SQL is the same, with ? for arguments.
type dialect struct {
	// schema has the statements of each version of the schema.
	schema [][]string
	// migrating keeps other processes from migrating at the same time.
	migrating string
	// durable has the commits of a connection wait for the disk, and relaxed ends that. PostgreSQL waits for it always.
	durable, relaxed string
	// size reads how many bytes the database has.
	size string
	// numbered says that arguments are written $1, $2.
	numbered bool
	// docs are the tables of a search by words, docID the column of them that is the row's id, and docMatch
	// the condition. Where nothing but the feed of rows is wanted, docsOnly are enough, and docFeed is the feed.
	docs, docID, docMatch, docsOnly, docFeed string
	// like compares with a pattern in any case, equal with a text in small letters, and contains
	// finds a text within another; %s is the column.
	like, equal, contains string
	// sameContent finds a definition.
	sameContent string
	// wordsInRow says that a row's words are a column of it, and not a table of their own.
	wordsInRow bool
	// match writes the terms of a query that are words.
	match func([]phrases) string
}

var sqlite = dialect{
	schema: sqliteSchema, durable: "PRAGMA synchronous=FULL", relaxed: "PRAGMA synchronous=NORMAL", size: "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
	docs: "words w CROSS JOIN object r ON r.id = w.rowid", docID: "w.rowid", docMatch: "w.words MATCH ?", docsOnly: "words w", docFeed: "w.rowid >> 32",
	like: `%s LIKE ? ESCAPE '\'`, equal: "%s = ? COLLATE NOCASE", contains: "instr(%s, ?) > 0", sameContent: "content = ?",
	match: matchFTS5,
}

var postgres = dialect{
	schema: postgresSchema, migrating: "SELECT pg_advisory_xact_lock(7310577235823419)", numbered: true,
	size: "SELECT pg_database_size(current_database())",
	docs: "object r", docID: "r.id", docMatch: "r.words @@ ?::tsquery", docsOnly: "object r", docFeed: "r.feed",
	like: `%s ILIKE ? ESCAPE '\'`, equal: "lower(%s) = ?", contains: "strpos(%s, ?) > 0", sameContent: "md5(content) = md5(?)", wordsInRow: true,
	match: matchTSQuery,
}

// sql returns a statement as the engine takes it.
func (d *dialect) sql(statement string) string {
	if !d.numbered {
		return statement
	}
	var b strings.Builder
	for n := 1; ; n++ {
		before, after, found := strings.Cut(statement, "?")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		b.WriteByte('$')
		b.WriteString(strconv.Itoa(n))
		statement = after
	}
}

// marks returns n times what stands for an argument or a tuple of them.
func marks(n int, mark string) string {
	return strings.TrimSuffix(strings.Repeat(mark+",", n), ",")
}

// phrases are alternatives of which a row must have one, in one column of its words or in any.
type phrases struct {
	column column
	any    []phrase
}

// phrase is words in sequence.
type phrase struct {
	words []string
	// prefix says that the last word is the beginning of one.
	prefix bool
}

// column is a part of a row's words.
type column int

const (
	anyColumn column = iota
	textColumn
	labelColumn
	imageColumn
)

// phrasesOf returns the phrases that rows must have to match a term; there are none if words
// cannot tell. All words are query.Words, so they mean nothing to an engine.
func phrasesOf(t query.Term) (p phrases, ok bool) {
	switch t.Key {
	case query.Word:
		p.column = anyColumn
	case query.Label:
		p.column = labelColumn
	case query.Image:
		p.column = imageColumn
	case query.Name, query.Namespace, query.Node, query.Status:
		p.column = textColumn
	default:
		return p, false
	}
	if t.Key == query.Word || t.Key == query.Label || t.Key == query.Image {
		p.any = []phrase{{t.Words(), t.IsPrefix()}}
		return p, true
	}
	for _, value := range t.Values {
		words := query.Words(string(value))
		if t.Not || value.IsPattern() || len(words) == 0 {
			return p, false
		}
		p.any = append(p.any, phrase{words: words})
	}
	return p, true
}

// matchFTS5 writes phrases in the language of SQLite's FTS5.
func matchFTS5(all []phrases) string {
	columns := map[column]string{anyColumn: "", textColumn: "content : ", labelColumn: "labels : ", imageColumn: "images : "}
	var parts []string
	for _, p := range all {
		var alternatives []string
		for _, phrase := range p.any {
			text := columns[p.column] + `"` + strings.Join(phrase.words, " ") + `"`
			if phrase.prefix {
				text += "*"
			}
			alternatives = append(alternatives, text)
		}
		parts = append(parts, "("+strings.Join(alternatives, " OR ")+")")
	}
	return strings.Join(parts, " AND ")
}

// matchTSQuery writes phrases in the language of PostgreSQL's tsquery. Columns are weights.
func matchTSQuery(all []phrases) string {
	weights := map[column]string{anyColumn: "", textColumn: "D", labelColumn: "C", imageColumn: "B"}
	var parts []string
	for _, p := range all {
		var alternatives []string
		for _, phrase := range p.any {
			words := make([]string, len(phrase.words))
			for i, word := range phrase.words {
				flags := weights[p.column]
				if phrase.prefix && i == len(words)-1 {
					flags += "*"
				}
				if words[i] = "'" + word + "'"; flags != "" {
					words[i] += ":" + flags
				}
			}
			alternatives = append(alternatives, strings.Join(words, " <-> "))
		}
		parts = append(parts, "("+strings.Join(alternatives, " | ")+")")
	}
	return strings.Join(parts, " & ")
}
