package version

import (
	"encoding/base64"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestContinue(t *testing.T) {
	for name, want := range map[string]Continue{
		"least":    {Time: minTime},
		"next":     {Time: 1795381200000000, Replica: Replicas - 1, Page: MaxPages, Next: "cluster2", Clusters: 1, Items: 500, APIVersion: "apps/v1", Kind: "DeploymentList"},
		"within":   {Time: 1795381200000000, Next: "cluster2", Member: "eyJ2IjoibWV0YS5rOHMuaW8vdjEifQ", Clusters: 1, Items: 700, Informer: true},
		"deferred": {Time: 1795381200000000, Deferred: []string{"edge-7", "", "edge-9"}, Clusters: maxCount, Items: maxCount},
	} {
		got, err := ParseContinue(want.String())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestParseContinueRefuses(t *testing.T) {
	good := Continue{Time: 1795381200000000, Next: "cluster2", Member: "abc"}.String()
	raw, err := base64.RawURLEncoding.DecodeString(good)
	if err != nil {
		t.Fatal(err)
	}
	encode := base64.RawURLEncoding.EncodeToString
	otherFormat := append([]byte{continueFormat + 1}, raw[1:]...)
	for name, s := range map[string]string{
		"empty": "", "no base64": "!!", "padded": good + "==", "other format": encode(otherFormat), "cut": encode(raw[:len(raw)-1]),
		"a member's": "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6NX0", "no time": Continue{Next: "a"}.String(), "negative": Continue{Time: minTime, Items: -1}.String(),
		"no replica": Continue{Time: minTime, Replica: Replicas}.String(), "too many pages": Continue{Time: minTime, Page: MaxPages + 1}.String(), "too many": Continue{Time: minTime, Clusters: maxCount + 1}.String(), "too long": strings.Repeat("A", maxContinue+1),
		"longer number": encode(append([]byte{continueFormat, raw[1], raw[2], raw[3], raw[4], raw[5], raw[6], raw[7], raw[8], 0x80, 0}, raw[10:]...)),
	} {
		if c, err := ParseContinue(s); err == nil {
			t.Errorf("%s: got %+v, want an error", name, c)
		}
	}
}

func FuzzParseContinue(f *testing.F) {
	f.Add(Continue{Time: 1795381200000000, Next: "cluster2", Member: "abc", Deferred: []string{"x"}, Clusters: 2, Items: 3}.String())
	f.Add("")
	f.Add("AQ")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseContinue(s)
		if err != nil {
			return
		}
		if got := c.String(); got != s {
			t.Errorf("ParseContinue(%q).String(): got %q", s, got)
		}
	})
}
