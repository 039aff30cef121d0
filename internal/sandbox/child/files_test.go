package child

import (
	"encoding/base64"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	"modernc.org/quickjs"
)

// Code can change what the prelude asks for. Go takes nothing on trust: a file gets no longer than it was made, and what is no
// question is an error.
func TestFilesTrustNothingOfThePrelude(t *testing.T) {
	t.Chdir(t.TempDir())
	f, err := openFiles()
	if err != nil {
		t.Fatal(err)
	}
	defer f.root.Close()
	none := quickjs.Undefined{}
	base64Of := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for _, c := range []struct {
		args []any
		want string
	}{
		{[]any{"create", "f", 4, none}, "<nil> "},
		{[]any{"put", "f", 1, base64Of("abc")}, "<nil> "},
		{[]any{"put", "f", 2, base64Of("abc")}, "<nil> it is shorter"},
		{[]any{"put", "f", -1, base64Of("abc")}, "<nil> -1 is not a size"},
		{[]any{"put", "f", 1e18, base64Of("a")}, "<nil> 1e+18 is not a size"},
		{[]any{"put", "f", math.NaN(), base64Of("a")}, "<nil> NaN is not a size"},
		{[]any{"put", "f", 0.5, base64Of("a")}, "<nil> 0.5 is not a size"},
		{[]any{"put", "f", "0", base64Of("a")}, "<nil> NaN is not a size"},
		{[]any{"put", "f", 0, "###"}, "<nil> illegal base64 data at input byte 0"},
		{[]any{"put", "none", 0, base64Of("a")}, "<nil> there is no such file"},
		{[]any{"put", "../f", 0, base64Of("a")}, "<nil> the path is outside of the working directory; use a relative path"},
		{[]any{"create", "f", 1 << 40, none}, "<nil> 1.099511627776e+12 is not a size"},
		{[]any{"create", "g", math.Inf(1), none}, "<nil> +Inf is not a size"},
		{[]any{"bytes", "f", 0, none}, base64Of("\x00abc") + " "},
		{[]any{"bytes", "f", 100, none}, " "},
		{[]any{"bytes", "f", none, none}, "<nil> NaN is not a size"},
		{[]any{"size", "f", none, none}, "4 "},
		{[]any{"size", none, none, none}, "<nil> the path has 0 bytes; use 1 to 1000"},
		{[]any{"remove", "f", none, none}, `<nil> there is no "remove"`},
		{[]any{none, none, none, none}, "<nil> the path has 0 bytes; use 1 to 1000"},
		{[]any{"list", none, none, none}, "[f] "},
	} {
		got, err := f.serve(c.args)
		if m, _ := got.(map[string]any); err != nil || fmt.Sprintf("%v %v", m["value"], m["error"]) != c.want {
			t.Errorf("%v: %v, %v", c.args, got, err)
		}
	}
	for n := range 6 {
		if n == 4 {
			continue
		}
		if got, err := f.serve(make([]any, n)); err == nil {
			t.Errorf("%d arguments: %v", n, got)
		}
	}
	if data, err := os.ReadFile("f"); err != nil || string(data) != "\x00abc" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := os.Stat("g"); err == nil {
		t.Error("a file without a size was made")
	}
}

// A path is one of the directory, in whichever way it is written.
func TestPathsInTheWorkingDirectory(t *testing.T) {
	for name, want := range map[string]string{
		"a": "a", "./a//b/": "a/b", "/work/a": "a", "/work/a/../b": "b", "a/..": "", "/work/": "", "/work": "", "/": "", "..": "", "a/../..": "", "/work//a": "",
		"/work/..": "", "...": "...", "..a": "..a", "a\x00": "", "a\xff": "", strings.Repeat("a", 1000): strings.Repeat("a", 1000), strings.Repeat("a/", 501): "",
		"workshop": "workshop", "/workshop/a": "", "work/a": "work/a",
	} {
		if got, err := inside(name); got != want || (err == nil) != (want != "") {
			t.Errorf("%.40q: %.40q, %v", name, got, err)
		}
	}
}
