package jsonscan

import (
	"encoding/json"
	"strings"
	"testing"
)

// A built-in tool reads the members that a rule has checked, and no others. // H17
func TestArgumentsAreDecodedByTheirExactNames(t *testing.T) {
	type arguments struct {
		Code   string                     `json:"code"`
		Limit  *int                       `json:"limit"`
		Values map[string]json.RawMessage `json:"values"`
	}
	var got arguments
	if err := Decode([]byte(`{"code":"checked","Code":"hidden","CODE":"hidden","other":1,"values":{"a":1.50}}`), &got); err != nil {
		t.Fatal(err)
	}
	if got.Code != "checked" || string(got.Values["a"]) != "1.50" {
		t.Errorf("decoded %+v", got)
	}
	if got = (arguments{}); Decode([]byte(`{"Code":"hidden"}`), &got) != nil || got.Code != "" {
		t.Errorf("decoded %+v", got)
	}
	for text, want := range map[string]string{
		`{"code":"checked","code":"hidden"}`: `duplicate`,
		`{"code":"checked","Code":"hidden"}`: `the argument Code is not known`,
		`{"limit":"x"}`:                      `the argument limit has the wrong type: string`,
		`[]`:                                 `the arguments are not a JSON object`,
		`{"code":`:                           `EOF`,
		`{"code":"a"} {}`:                    `after top-level value`,
	} {
		if err := DecodeStrict([]byte(text), new(arguments)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
