package turnpiketest_test

import (
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestAStoryThatIsWrongNamesItsLine(t *testing.T) {
	for name, row := range map[string]struct{ story, want string }{
		"an unknown word":          {"text a\nshout b", `line 2: unknown word "shout"`},
		"quotes that do not close": {`text "a`, "the quotes do not close"},
		"a call without a name":    {"\n\ncall c1", "line 3: call needs an id and a name"},
		"an unknown stop reason":   {"stop tired", `unknown stop reason "tired"`},
		"a usage of one number":    {"usage 3", "not two numbers"},
		"a usage of words":         {"usage 3 many", "not two numbers"},
		"a usage of three":         {"usage 3 4 5", "not two numbers"},
		"a wait without a unit":    {"wait 20", "missing unit"},
		"a failure of success":     {"fail 200", "not the status of an error"},
		"a wait that is no number": {"fail 429 retry-after soon", "not a number of seconds"},
		"words after cut":          {"cut here", "nothing belongs here"},
		"again and never":          {"text a\nagain 0", "not a number of calls"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := turnpiketest.ParseScript(row.story)
			if err == nil || !strings.Contains(err.Error(), row.want) {
				t.Errorf("%v, want %q", err, row.want)
			}
		})
	}
}

func TestTurnsArePartedByEmptyLines(t *testing.T) {
	s := turnpiketest.NewScript(t, "\n# a remark\ntext a\n\n\n \ntext b\r\nagain 2\n\nstop length\nagain\n")
	if s.Left() != 5 { // a, b three times, and the one that goes on
		t.Errorf("%d turns are left, want 5", s.Left())
	}
}

func FuzzParseScript(f *testing.F) {
	f.Add("text a\ncall c1 search {\"q\":1}\n\nfail 429 retry-after 3 slow down\nagain\n")
	f.Add("text \"a\\n\"\nusage 1 2\nwait 1ms\ncut\nhang\nstop length")
	f.Fuzz(func(t *testing.T, story string) {
		s, err := turnpiketest.ParseScript(story)
		if (s == nil) != (err != nil) {
			t.Errorf("%v beside %v", s, err)
		}
		if s != nil && s.Left() < 0 {
			t.Error("fewer than no turns")
		}
	})
}
