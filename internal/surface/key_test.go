package surface

import (
	"net/http"
	"strings"
	"testing"
)

func TestAKeyIsOneShortLineOfASCII(t *testing.T) { // P24
	for name, header := range map[string]http.Header{
		"empty":    {keyHeader: {""}},
		"two":      {keyHeader: {"a", "b"}},
		"too long": {keyHeader: {strings.Repeat("k", maxKey+1)}},
		"control":  {keyHeader: {"a\tb"}},
		"unicode":  {keyHeader: {"schlüssel"}},
	} {
		if _, err := SubmitKey(header, "p", "chat", []byte(`{}`)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if k, err := SubmitKey(http.Header{}, "p", "chat", nil); k != nil || err != nil {
		t.Errorf("no key: %+v, %v", k, err)
	}
	longest := strings.Repeat("k", maxKey)
	if k, err := SubmitKey(http.Header{keyHeader: {longest}}, "p", "chat", []byte(`{}`)); err != nil || k.Key != longest || k.Principal != "p" {
		t.Errorf("%+v, %v", k, err)
	}
}

func TestRequestsAreTheSameIfTheySayTheSame(t *testing.T) { // P24
	same := []string{`{"a":1,"b":[true,"x"]}`, "{ \"b\" : [true,\n\"\\u0078\"], \"a\":1 }"}
	if requestHash("chat", []byte(same[0])) != requestHash("chat", []byte(same[1])) {
		t.Error("order, space and escapes do not count")
	}
	seen := map[string]string{}
	for _, body := range []string{same[0], `{"a":2,"b":[true,"x"]}`, `{"a":1,"b":["x",true]}`, `{"a":"1","b":[true,"x"]}`, `{"a":1}`, `{"a":1,"a":1}`, `{"a":9007199254740993}`, `{"a":9007199254740992}`} {
		h := requestHash("chat", []byte(body))
		if other, taken := seen[h]; taken {
			t.Errorf("%s and %s have one hash", body, other)
		}
		seen[h] = body
	}
}

// Stored keys meet new builds: the hash of a request to a surface never changes. // P24
func TestTheHashOfARequestBelongsToItsSurface(t *testing.T) {
	body := []byte(`{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
	if got := requestHash("chat", body); got != "7NjzdSmz6jqte0wPeGrpxVz-nF_scGspMMPGbu3hMvo" {
		t.Errorf("chat: %s", got)
	}
	if requestHash("chat", body) == requestHash("responses", body) {
		t.Error("requests to two surfaces are one request")
	}
}
