package version

import (
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

func TestVersionString(t *testing.T) {
	tests := []struct {
		version Version
		want    string
	}{
		{Version{Time: 1795381200000001}, "1795381200000001" + strings.Repeat("0", 38)},
		{Version{Time: minTime, Replica: 271828, Cluster: 7, Member: 48151}, "1000000000000000" + "271828" + "0000000000007" + "0000000000000048151"},
		{Version{Time: MaxTime, Replica: Replicas - 1, Cluster: clusterLimit - 1, Member: MemberLimit - 1}, strings.Repeat("9", 54)},
	}
	for _, test := range tests {
		got := test.version.String()
		if got != test.want {
			t.Errorf("%+v: got %q, want %q", test.version, got, test.want)
		}
		if parsed, err := Parse(got); err != nil || parsed != test.version {
			t.Errorf("Parse(%q): got %+v, %v, want %+v", got, parsed, err, test.version)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	good := Version{Time: 1795381200000000, Cluster: 1, Member: 1}.String()
	for name, s := range map[string]string{
		"empty": "", "zero": "0", "a member's": "48151", "short": good[1:], "long": good + "0", "leading zero": "0" + good[1:],
		"sign": "+" + good[1:], "letter": good[:30] + "a" + good[31:], "minus inside": good[:20] + "-" + good[21:], "endless": strings.Repeat("1", 1<<20),
	} {
		_, err := Parse(s)
		if err == nil {
			t.Errorf("%s: got no error", name)
			continue
		}
		if len(err.Error()) > 300 {
			t.Errorf("%s: got an error of %d bytes, want one that can be shown", name, len(err.Error()))
		}
	}
}

// TestOrder compares as clients do.
func TestOrder(t *testing.T) {
	ascending := []Version{
		{Time: minTime},
		{Time: 1795381200000000},
		{Time: 1795381200000000, Cluster: 5, Member: MemberLimit - 1},
		{Time: 1795381200000001},
		{Time: 1795381200000001, Replica: 1},
		{Time: 1795381200000001, Replica: 1, Cluster: clusterLimit - 1, Member: 3},
		{Time: 1795381200000002, Cluster: 1, Member: 1},
		{Time: MaxTime},
	}
	for i, a := range ascending[:len(ascending)-1] {
		got, err := resourceversion.CompareResourceVersion(a.String(), ascending[i+1].String())
		if err != nil || got != -1 {
			t.Errorf("comparing %v with %v: got %d, %v, want -1", a, ascending[i+1], got, err)
		}
	}
}

func TestNumber(t *testing.T) {
	// Written down: another hash would make every version in use unknown.
	if got, want := Number(""), uint64(0xe3b0c44298fc1c14)%clusterLimit; got != want {
		t.Errorf("number of no UID: got %d, want %d (the hash of nothing)", got, want)
	}
	if Number("a") == Number("b") {
		t.Error("two UIDs have one number")
	}
}

func TestOfMember(t *testing.T) {
	for s, want := range map[string]uint64{
		"": 0, "0": 0, "00": 0, "07": 0, "1": 1, "48151": 48151, "9999999999999999999": MemberLimit - 1, "10000000000000000000": 0,
		"18446744073709551616": 0, "-1": 0, "+1": 0, "1a": 0, "1_0": 0, "0x1": 0, " 1": 0,
	} {
		if got := OfMember(s); got != want {
			t.Errorf("OfMember(%q): got %d, want %d", s, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(Version{Time: 1795381200000000, Cluster: 12, Member: 5}.String())
	f.Add("")
	f.Add(strings.Repeat("9", 54))
	f.Add("0" + strings.Repeat("9", 53))
	f.Fuzz(func(t *testing.T, s string) {
		v, err := Parse(s)
		if err != nil {
			return
		}
		if got := v.String(); got != s {
			t.Errorf("Parse(%q).String(): got %q", s, got)
		}
		if v.Time < minTime || v.Time > MaxTime || v.Replica >= Replicas || v.Cluster >= clusterLimit || v.Member >= MemberLimit {
			t.Errorf("Parse(%q): got %+v, which is out of range", s, v)
		}
		if _, err := resourceversion.CompareResourceVersion(s, s); err != nil {
			t.Errorf("apimachinery refuses %q: %v", s, err)
		}
	})
}

func FuzzVersion(f *testing.F) {
	f.Add(int64(1795381200000000), uint32(9), uint64(1), uint64(2))
	f.Add(int64(math.MaxInt64), uint32(math.MaxUint32), uint64(math.MaxUint64), uint64(0))
	f.Fuzz(func(t *testing.T, time int64, replica uint32, cluster, member uint64) {
		if time < minTime || time > MaxTime || replica >= Replicas || cluster >= clusterLimit || member >= MemberLimit {
			return
		}
		v := Version{Time: time, Replica: replica, Cluster: cluster, Member: member}
		if got, err := Parse(v.String()); err != nil || got != v {
			t.Errorf("%+v: got %+v, %v", v, got, err)
		}
	})
}
