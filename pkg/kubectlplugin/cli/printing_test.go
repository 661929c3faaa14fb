package cli_test

import (
	"encoding/json"
	"strings"
	"testing"

	"open-cluster-management.io/cluster-proxy/test/testkit/clitest"
)

// FuzzTerminal also wants JSON to stay what it was.
func FuzzTerminal(f *testing.F) {
	clitest.AddHostile(f)
	f.Fuzz(func(t *testing.T, text string) {
		p, out := clitest.NewTerminal()
		if _, err := p.Print("json", map[string]string{"apiVersion": "v1", "kind": "Text", "text": text}); err != nil {
			t.Fatal(err)
		}
		clitest.WantText(t, out.String(), 5)
		var got map[string]string
		if err := json.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		if want := strings.ToValidUTF8(text, "\ufffd"); len([]rune(got["text"])) != len([]rune(text)) && got["text"] != want {
			t.Errorf("%+q became %+q", text, got["text"])
		}
	})
}
