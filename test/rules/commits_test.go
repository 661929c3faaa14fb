package rules

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// subjectsSince is the last commit whose subject may be any.
const subjectsSince = "9d55565f1a0de97f7b245b825652f89ef16ea347"

// subject is the form of a commit's subject: where, and what it does, in at most 72 characters.
var subject = regexp.MustCompile(`^([a-z0-9./-]+(, [a-z0-9./-]+)*: [a-z]|Revert ")`)

// TestCommitSubjects checks the subjects of commits. It cannot see the imperative.
func TestCommitSubjects(t *testing.T) {
	log := exec.CommandContext(t.Context(), "git", "log", "--format=%h %s", subjectsSince+"..HEAD")
	log.Dir = root(t)
	out, err := log.Output()
	if err != nil {
		t.Fatalf("reading the commits since %s: %v; is the clone shallow? git fetch --unshallow", subjectsSince, err)
	}
	for line := range strings.Lines(string(out)) {
		hash, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		if len(text) > 72 || !subject.MatchString(text) {
			t.Errorf("the subject of commit %s is %q: want scope, colon and imperative, in at most 72 characters: git commit --amend", hash, text)
		}
	}
}
