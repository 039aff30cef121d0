package surface

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
)

// sent returns a request with a body.
func sent(t *testing.T, body string) *http.Request {
	t.Helper()
	return httptest.NewRequestWithContext(t.Context(), "POST", "/api/webhooks", strings.NewReader(body))
}

// A mistake in a body is an error that names the member; a misspelt one with the name that was probably meant.
func TestMistakesInABodyAreNamed(t *testing.T) {
	for _, c := range [][2]string{
		{`{"name":"ops","events":["run.waiting"],"more":{"n":7}}`, "<nil>"},
		{`{"name":null,"events":null,"more":null}`, "<nil>"},
		{`{"evnts":[]}`, `unknown_parameter evnts: unknown member "evnts"; did you mean events?`},
		{`{"Events":[]}`, `unknown_parameter Events: unknown member "Events"; names are case-sensitive; write events`},
		{`{"colour":1}`, `unknown_parameter colour: unknown member "colour"; known members are name, events, more`},
		{`{"more":{"m":1}}`, `unknown_parameter more.m: unknown member "more.m"; did you mean n?`},
		{`{"more":[]}`, `invalid_value more: more: must be a JSON object`},
		{`{"more":{"n":"7"}}`, `invalid_value more.n: more.n: must be a whole number`},
		{`{"name":1,"evnts":[]}`, `invalid_value name: name: must be a string`},
		{`[]`, `invalid_json : the request body is not valid JSON: unexpected '[' where an object should be at byte 0 (line 1, column 1)`},
		{``, `invalid_json : the request body is not valid JSON: unexpected end where an object should be at byte 0 (line 1, column 1)`},
	} {
		body, want := c[0], c[1]
		f, err := ReadFields(sent(t, body), memlimit.New(memlimit.Options{}).Open("o"))
		if err == nil {
			var name string
			var n int
			f.Text("name", &name)
			f.List("events")
			if v, ok := f.Take("more"); ok && !IsNull(v) {
				inside := FieldsOf("more", v)
				inside.Int("n", &n)
				f.Keep(inside.Done())
			}
			err = f.Done()
		}
		got := fmt.Sprint(err)
		if err != nil {
			e := fault.From(err)
			got = e.Reason + " " + e.Param + ": " + e.Message
		}
		if got != want {
			t.Errorf("%s:\n%s, want\n%s", body, got, want)
		}
	}
}

// What is decoded of a body is charged to the account of the request, however it is read.
func TestReadingABodyIsCharged(t *testing.T) {
	body := `{"name":"` + strings.Repeat("x", 10_000) + `"}`
	for name, read := range map[string]func(*http.Request, *memlimit.Account) error{
		"body": func(r *http.Request, a *memlimit.Account) error {
			_, _, err := ReadBody(r, a)
			return err
		},
		"object": func(r *http.Request, a *memlimit.Account) error {
			_, err := ReadObject(r, a)
			return err
		},
		"fields": func(r *http.Request, a *memlimit.Account) error {
			_, err := ReadFields(r, a)
			return err
		},
		"secret": func(r *http.Request, a *memlimit.Account) error {
			_, err := ReadSecret(r, a, "name")
			return err
		},
	} {
		account := memlimit.New(memlimit.Options{}).Open("o")
		if err := read(sent(t, body), account); err != nil || account.Used() < 10_000 {
			t.Errorf("%s: %d bytes are charged, %v", name, account.Used(), err)
		}
		account = memlimit.New(memlimit.Options{Run: 100}).Open("o")
		if err := read(sent(t, body), account); err == nil {
			t.Errorf("%s: it is read without memory", name)
		}
	}
}

// A secret can stand in the place of a name, or of anything else: no error quotes a byte of the body. // K06
func TestErrorsAboutASecretQuoteNothing(t *testing.T) {
	for _, body := range []string{
		`q`, `{q`, `{"value":q}`, `{"q":"q"}`, `{"value":"q","q":1}`, `{"value":["q"]}`, `{"q":1}`, `["q"]`, `{"value":"q"} q`,
		`{"valu":"q"}`, "",
		`{"value":` + strings.Repeat(`["q",`, 100) + `1` + strings.Repeat("]", 100) + `}`,
	} {
		_, err := ReadSecret(sent(t, body), memlimit.New(memlimit.Options{}).Open("o"), "value")
		e := fault.From(err)
		said := strings.ReplaceAll(e.Message, "request", "")
		if e.Code != fault.Invalid || strings.ContainsAny(said, "q'") || e.Param != "" {
			t.Errorf("%s: %v in %q", body, err, e.Param)
		}
	}
	if text, err := ReadSecret(sent(t, `{"value":"q"}`), memlimit.New(memlimit.Options{}).Open("o"), "value"); text != "q" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
}
