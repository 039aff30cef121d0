package wire

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, tt := range []struct {
		after, ms string
		want      time.Duration
	}{
		{"", "", 0}, {"2", "", 2 * time.Second}, {"0.5", "", time.Second / 2}, {"2", "1500", 1500 * time.Millisecond}, {"1", "0", time.Second},
		{"Fri, 02 Jan 2026 03:04:35 GMT", "", 30 * time.Second}, {"Fri, 02 Jan 2026 03:04:00 GMT", "", 0},
		{"-1", "", 0}, {"soon", "x", 0}, {"1e300", "", 24 * time.Hour}, {"NaN", "", 0},
	} {
		h := http.Header{}
		h.Set("Retry-After", tt.after)
		h.Set("Retry-After-Ms", tt.ms)
		if got := retryAfter(h, now); got != tt.want {
			t.Errorf("%q %q: %v, want %v", tt.after, tt.ms, got, tt.want)
		}
	}
}

func TestARetryAfterIsADayAtMost(t *testing.T) {
	for _, name := range []string{"Retry-After", "Retry-After-Ms"} {
		for said, want := range map[string]time.Duration{"1e300": maxRetryAfter, "99999999999999999999": maxRetryAfter, "-1": 0, "NaN": 0, "soon": 0} {
			if got := retryAfter(http.Header{name: {said}}, time.Now()); got != want {
				t.Errorf("%s: %s: %v, want %v", name, said, got, want)
			}
		}
	}
	if got := retryAfter(http.Header{"Retry-After": {"Fri, 31 Dec 9999 23:59:59 GMT"}}, time.Now()); got != maxRetryAfter {
		t.Errorf("a date: %v", got)
	}
}

func FuzzDescribe(f *testing.F) {
	f.Add(`{"error":{"message":"m","code":1,"innererror":{"code":"x"}},"detail":[{"msg":"a"}]}`)
	f.Add(`[{"error":"x"}]`)
	f.Fuzz(func(t *testing.T, body string) {
		d := Describe([]byte(body))
		if Classify(d.status, d) == "" || Classify(400, d) == "" {
			t.Error("no class")
		}
	})
}

// FuzzWalk: what stands in a provider's JSON is found as the standard library
// finds it: members in their order with the last one of a name, elements, texts.
func FuzzWalk(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"b":[{"c":"\u00e9\\"},"]"],"a":{"x":"}"}}`, `[ 1 , "a,b" , [2] ]`, `{"\u0061" : null , "" : -1.5e3 }`, `"\ud83d\ude00\ud800"`, "{\"a\":\"\xff\"}",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		data := TrimSpace([]byte(text))
		if !Valid(data) || !utf8.Valid(data) {
			return
		}
		var want map[string]json.RawMessage
		if data[0] == '{' && json.Unmarshal(data, &want) == nil {
			for name, v := range want {
				if !utf8.ValidString(name) || strings.ContainsRune(name, utf8.RuneError) {
					continue // several names become one
				}
				checkValue(t, Member(data, name), v)
			}
			for name := range Members(data) {
				if _, ok := want[string(name)]; !ok {
					t.Fatalf("%s has no member %q", data, name)
				}
			}
		}
		var list []json.RawMessage
		if data[0] == '[' && json.Unmarshal(data, &list) == nil {
			n := 0
			for i, v := range Elements(data) {
				checkValue(t, v, list[i])
				n++
			}
			if n != len(list) {
				t.Fatalf("%s has %d elements, %d were found", data, len(list), n)
			}
		}
	})
}

// checkValue compares a value that was found with the same of the standard
// library.
func checkValue(t *testing.T, got []byte, want json.RawMessage) {
	t.Helper()
	if string(got) != string(want) {
		t.Fatalf("%s, want %s", got, want)
	}
	var s string
	if want[0] == '"' && json.Unmarshal(want, &s) == nil && string(AppendText(nil, got)) != s {
		t.Fatalf("%s is read as %q, want %q", got, AppendText(nil, got), s)
	}
}

// Comments and slow pieces are no silence.
func TestEveryByteResetsTheWatch(t *testing.T) {
	src := &source{src: strings.NewReader("abc"), left: 2, watch: time.NewTimer(time.Hour), silence: time.Hour}
	defer src.watch.Stop()
	got, err := io.ReadAll(src)
	if string(got) != "ab" || !errors.Is(err, errTooMuch) {
		t.Errorf("%q %v", got, err)
	}
}
