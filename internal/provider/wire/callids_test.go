package wire

import (
	"slices"
	"strings"
	"testing"
	"unicode"
)

func TestCallIDs(t *testing.T) { // M05
	long := strings.Repeat("l", 9)
	for name, tt := range map[string]struct {
		ids   CallIDs
		calls []string
		want  []string
	}{
		"ids that are accepted stay":        {CallIDs{}, []string{"a", "ü", long}, []string{"a", "ü", long}},
		"an id is there once":               {CallIDs{}, []string{"a", "a", "a"}, []string{"a", "call_1", "call_2"}},
		"and is not empty":                  {CallIDs{}, []string{"", "b", ""}, []string{"call_0", "b", "call_2"}},
		"a new id is not one that is there": {CallIDs{}, []string{"a", "call_2", ""}, []string{"a", "call_2", "call_3"}},
		"a long id is replaced":             {CallIDs{MaxLength: 8}, []string{long, "12345678"}, []string{"call_0", "12345678"}},
		"characters are replaced":           {CallIDs{Allowed: unicode.IsLetter}, []string{"a.b", "a-b"}, []string{"a_b", "call_1"}},
		"ids of one length": {
			CallIDs{Length: 9, Allowed: unicode.IsLetter}, []string{"c", "abcdefghi", "abcdefghij", "a-b_cdefghi", "", "c"},
			[]string{"call00000", "abcdefghi", "call00002", "call00003", "call00004", "call00005"},
		},
		"so that the transcript's ids differ": {CallIDs{MaxLength: 8}, []string{long, long + "x", long}, []string{"call_0", "call_1", "call_2"}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls, results []string
			for _, id := range tt.calls {
				calls = append(calls, tt.ids.Call(id))
			}
			for _, id := range tt.calls {
				results = append(results, tt.ids.Result(id))
			}
			if !slices.Equal(calls, tt.want) || !slices.Equal(results, tt.want) {
				t.Errorf("calls %q, results %q, want %q", calls, results, tt.want)
			}
		})
	}
	var ids CallIDs
	ids.Call("a")
	ids.Call("a")
	if got := []string{ids.Result("b"), ids.Result("a"), ids.Result("a"), ids.Result("a")}; !slices.Equal(got, []string{"b", "a", "call_1", "a"}) {
		t.Errorf("results %q", got)
	}
}
