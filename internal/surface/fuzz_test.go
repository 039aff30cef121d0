package surface

import (
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/turnpike-gateway/turnpike/internal/fault"
)

// FuzzKey: an Idempotency-Key is taken as it was sent or refused in words for
// the caller, and a body is the same request just when it says the same,
// however it is written. // P24
func FuzzKey(f *testing.F) {
	f.Add("key-1", `{"model":"m","messages":[{"role":"user","content":"é"}]}`, `{"messages":[{"content":"\u00e9","role":"user"}],"model":"m"}`)
	f.Add("", `{"n":1}`, `{"n":1.0}`)
	f.Add("a\x7f", `{"a":1,"a":2}`, `{"a":2}`)
	f.Add(strings.Repeat("k", 256), `{"seed":9007199254740993}`, `{"seed":9007199254740992}`)
	f.Fuzz(func(t *testing.T, key, one, two string) {
		got, err := SubmitKey(http.Header{keyHeader: {key}}, "p", "chat", []byte(one))
		plain := key != "" && len(key) <= maxKey && strings.Trim(key, printable) == ""
		var refused *fault.Error
		switch {
		case plain && (err != nil || got.Key != key || got.Principal != "p" || got.Hash != requestHash("chat", []byte(one))):
			t.Fatalf("%q: %+v, %v", key, got, err)
		case !plain && (got != nil || !errors.As(err, &refused) || refused.Code != fault.Invalid):
			t.Fatalf("%q: %+v, %v", key, got, err)
		}
		a, b := requestHash("chat", []byte(one)), requestHash("chat", []byte(two))
		if !jsontext.Value(one).IsValid() || !jsontext.Value(two).IsValid() {
			if (one == two) != (a == b) {
				t.Fatalf("%q and %q: hashes %s and %s", one, two, a, b)
			}
			return
		}
		var x, y any
		if json.Unmarshal([]byte(one), &x) == nil && json.Unmarshal([]byte(two), &y) == nil && a == b && !reflect.DeepEqual(x, y) {
			t.Fatalf("%s and %s are one request", one, two)
		}
		if spread := respelled(t, one); requestHash("chat", spread) != a {
			t.Fatalf("%s is another request as %s", one, spread)
		}
	})
}

// respelled writes a JSON value with its members in another order, with other
// escapes and more space.
func respelled(t *testing.T, text string) []byte {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatal(err)
	}
	out, err := json.MarshalIndent(v, " ", "\t")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

const printable = " !\"#$%&'()*+,-./0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\]^_`abcdefghijklmnopqrstuvwxyz{|}~"
