// Package query parses searches of the fleet index and makes words of texts. It is pure.
//
//	log4j                                        a word: in a name, label, image, owner, node or printed cell
//	"nginx 1.25"                                 words in sequence
//	crash*                                       the beginning of a word
//	kind:pod status:CrashLoopBackOff,Error       a key, and values of which one must match
//	cluster:eu-* namespace:!kube-*               a pattern, and what must not match
//	label:app=web label:tier image:nginx:1.25    a label with a value, a label, words of an image
//
// All terms of a query must match. Words are whole and in any case: log4j is in
// "registry/log4j:2.0", whose words are registry, log4j, 2 and 0. A word with punctuation is its
// parts in sequence. The values of kind, status, cluster, namespace, name and node are compared in
// any case with the whole text, and their patterns know * and ?. A kind is also found by the names of
// its resource, as in kind:pods, kind:deploy or kind:deployments.apps. The keys image and label search texts in
// which a * can only be at the end.
//
// A key that is not known is an error, because a typing error would find nothing, and so is a ! behind a comma, which
// could mean two things. Quotes make a text with a colon a word.
//
// String returns the query in one form, which identifies it: Parse(q.String()) is q.
//
// # Files
//
//	parse.go  Query, Term, Parse
//	value.go  values and patterns of one key
//	words.go  the words of a text
package query
