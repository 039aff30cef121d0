package providertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Dialect is an adapter as the checks on what it sends need it. What its test
// reads, it reads with encoding/json, not with the adapter.
type Dialect struct {
	Decode Decode
	Encode func(*model.Request) ([]byte, error)

	// Said returns what the provider said in a recorded answer, in the form in
	// which a later request repeats it.
	Said func(testing.TB, Recording) any
	// Repeated returns that part of a request which consists of one user message
	// and an answer.
	Repeated func(t testing.TB, body []byte) any

	// Request reads a recorded request into plain fields, without native forms;
	// nil = the recording has none that could be written again.
	Request func(testing.TB, Recording) *model.Request
	// Meaning reads a request so that two that mean the same are equal: without
	// other spellings, and without what only the recorded client could know.
	Meaning func(t testing.TB, body []byte) any
}

// provider is the name of the provider in the checks.
const provider = "recorded"

// RepeatsAnswers fails the test if an answer that was decoded does not go back to
// its provider as the provider said it: in order, with reasoning, calls, refusals
// and members that the gateway does not know.
func (d Dialect) RepeatsAnswers(t *testing.T, all []Recording) {
	for _, r := range all {
		if r.Response.Status != http.StatusOK || r.Expected.Error != nil {
			continue
		}
		t.Run(r.Name, func(t *testing.T) {
			turn := d.Decode.Run(bytes.NewReader(r.Body)).Turn
			items := []item.Item{item.NewText(item.User, "Hi.")}
			for _, i := range turn.Items {
				if i.Kind == item.Reasoning || i.Native.JSON != nil {
					i.Native.Provider = provider
				}
				i.Turn = 1
				items = append(items, i)
			}
			body, err := d.Encode(&model.Request{Model: "m", Items: item.For(Stored(t, items), provider)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(d.Said(t, r), d.Repeated(t, body)); diff != "" {
				t.Error("what the provider said (-) and what goes back to it (+):\n", diff)
			}
		})
	}
}

// Stored returns items as they are read again after they were stored.
func Stored(t testing.TB, items []item.Item) []item.Item {
	t.Helper()
	data, err := json.Marshal(item.List(items))
	if err != nil {
		t.Fatal(err)
	}
	var list item.List
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// leastRequests is how many recorded requests every dialect can write again.
const leastRequests = 10

// WritesRequests fails the test if a request that the adapter writes from plain
// fields does not mean the same as the recorded one, or if there are too few.
func (d Dialect) WritesRequests(t *testing.T, all []Recording) {
	compared := 0
	for _, r := range all {
		req := d.Request(t, r)
		if req == nil {
			continue
		}
		compared++
		t.Run(r.Name, func(t *testing.T) {
			body, err := d.Encode(req)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(d.Meaning(t, r.Request.Body), d.Meaning(t, body)); diff != "" {
				t.Error("the recorded request (-) and ours (+):\n", diff)
			}
		})
	}
	if compared < leastRequests {
		t.Errorf("%d requests were compared, want %d or more", compared, leastRequests)
	}
}

// OfKind returns the items of a kind.
func OfKind(items []item.Item, kind item.Kind) []item.Item {
	var out []item.Item
	for _, it := range items {
		if it.Kind == kind {
			out = append(out, it)
		}
	}
	return out
}

// CheckAnyAnswer fails the test if the turn of an answer, valid or not, has no end
// and no error, has other deltas than items, cannot be stored or sent back, or has a
// usage beyond the limits.
func (d Dialect) CheckAnyAnswer(t *testing.T, body string) {
	t.Helper()
	got := d.Decode.Run(strings.NewReader(body))
	if again := d.Decode.Run(strings.NewReader(body)); got.Err != again.Err {
		t.Fatalf("%s, then %s", got.Err, again.Err)
	}
	if got.Turn == nil {
		return
	}
	if got.Err == fmt.Sprint(error(nil)) && got.Turn.Stop == "" {
		t.Fatalf("%q has no end and no error", body)
	}
	CheckDeltas(t, got)
	if _, err := json.Marshal(item.List(got.Turn.Items)); err != nil {
		t.Fatalf("%q cannot be stored: %v", body, err)
	}
	req := &model.Request{Model: "m", Items: append([]item.Item{item.NewText(item.User, "x")}, got.Turn.Items...)}
	if sent, err := d.Encode(req); err != nil || !json.Valid(sent) {
		t.Fatalf("%q cannot be sent back: %s, %v", body, sent, err)
	}
	u := got.Turn.Usage
	if min(u.Input, u.Output, u.Total, u.CachedInput, u.CacheWrite, u.Reasoning) < 0 || u.Total > 4*wire.MaxUsage {
		t.Fatalf("usage %+v", u)
	}
}

// SameJSON reports whether two JSON values are equal.
func SameJSON(t testing.TB, a, b string) bool {
	t.Helper()
	var x, y any
	if err := errors.Join(json.Unmarshal([]byte(a), &x), json.Unmarshal([]byte(b), &y)); err != nil {
		t.Fatal(err)
	}
	return reflect.DeepEqual(x, y)
}

// Object reads a JSON object without the members that are null.
func Object(t testing.TB, raw []byte) map[string]any {
	t.Helper()
	var object map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(&object); err != nil {
		t.Fatalf("%v in %.200s", err, raw)
	}
	return withoutNull(object).(map[string]any)
}

func withoutNull(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if member == nil {
				delete(v, name)
			} else {
				v[name] = withoutNull(member)
			}
		}
	case []any:
		for i := range v {
			v[i] = withoutNull(v[i])
		}
	}
	return v
}
