package httptool

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
)

// Whatever the arguments are, the URL that they make has the host of the configuration, the path has
// the segments that it has there, and the parameters have the values.
func FuzzFill(f *testing.F) {
	for _, seed := range [][2]string{{"A 7", "x"}, {"..", "."}, {"../..", "%2e"}, {"@evil", "#"}, {"\\", "/"}, {"ü?", "&x=1"}, {"", "{a}"}, {"\x00", "\x80"}} {
		f.Add(seed[0], seed[1])
	}
	u, err := ParseURL("https://api.example.com/orders/{a}/items?b={b}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		ja, _ := json.Marshal(a)
		jb, _ := json.Marshal(b)
		arguments := map[string]json.RawMessage{"a": ja, "b": jb, "c": jb}
		text, err := u.Fill(arguments)
		if err != nil {
			return
		}
		got, err := url.Parse(withQuery(text, arguments))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		var wa, wb string
		_ = json.Unmarshal(ja, &wa)
		_ = json.Unmarshal(jb, &wb)
		segments := strings.Split(got.EscapedPath(), "/")
		if got.Host != "api.example.com" || got.User != nil || got.Fragment != "" || len(segments) != 4 || segments[1] != "orders" || segments[3] != "items" {
			t.Fatalf("%q and %q make %s", a, b, got)
		}
		if decoded, _ := url.PathUnescape(segments[2]); decoded != wa || decoded == ".." || decoded == "." || got.Query().Get("b") != wb || got.Query().Get("c") != wb {
			t.Errorf("%q and %q make %s", a, b, got)
		}
	})
}
