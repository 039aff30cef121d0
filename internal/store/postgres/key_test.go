package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func FuzzKeysComeBack(f *testing.F) {
	f.Add("r", "acme", "run_1")
	f.Add("q", "", "")
	f.Add("r", "", "run_1")
	f.Add("r", "a b", "%20 +\xff\n\x00é")
	f.Fuzz(func(t *testing.T, kind, org, id string) {
		k := Key{kind, org, id}
		line := k.encode()
		if strings.ContainsAny(line, "\n\x00") {
			t.Fatalf("%q is no line", line)
		}
		if got, ok := decodeKey(line); kind != "" && (!ok || got != k) {
			t.Errorf("%+v came back as %+v, %v from %q", k, got, ok, line)
		}
		if got, ok := decodeKey(org); ok && got.encode() != org {
			t.Errorf("%q was taken for %+v", org, got)
		}
	})
}

func TestMessagesHaveTheSizeThatServersTake(t *testing.T) {
	var keys []Key
	for i := range 1000 {
		keys = append(keys, Key{RingRun, "acme", fmt.Sprint(strings.Repeat("x", i%60), i)})
	}
	long := Key{RingCancel, "acme", strings.Repeat("y", 9000)}
	keys = append(keys, long, Key{RingQueue, "", ""})
	var got []Key
	for _, m := range messages("me", keys) {
		from, lines, _ := strings.Cut(m, "\n")
		n := 0
		for line := range strings.SplitSeq(lines, "\n") {
			k, ok := decodeKey(line)
			if !ok {
				t.Fatalf("line %q", line)
			}
			got = append(got, k)
			n++
		}
		if from != "me" || len(m) >= 7999 || n > 150 {
			t.Errorf("a message of %d bytes and %d keys, from %q", len(m), n, from)
		}
	}
	keys[1000] = Key{Kind: RingCancel} // everything of the kind
	if !slices.Equal(got, keys) {
		t.Errorf("%d keys of %d, or others", len(got), len(keys))
	}
	if m := messages("me", nil); len(m) != 0 {
		t.Errorf("messages %q for nothing", m)
	}
}

func TestChannelsHaveNamesThatAreNotCut(t *testing.T) {
	if got := channelOf("gateway"); got != "turnpike_gateway" {
		t.Errorf("channel %q", got)
	}
	one, two := channelOf(strings.Repeat("x", 62)+"1"), channelOf(strings.Repeat("x", 62)+"2")
	if len(one) > 63 || one == two {
		t.Errorf("channels %q and %q", one, two)
	}
}
