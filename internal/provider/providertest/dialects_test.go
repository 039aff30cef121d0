package providertest_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// dialect is an adapter in the table. What its test reads of recordings and of requests, it reads with
// encoding/json, not with the adapter.
type dialect struct {
	name       string   // in model.Error and item.Native
	recordings []string // directories
	unwrap     func(t testing.TB, r *providertest.Recording)
	open       func(e wire.Endpoint) model.Model
	suites     []providertest.Adapter

	// usage is the usage of an answer as the adapter reports it.
	usage func(w usage) model.Usage
	// own checks what only this dialect has: native forms, signatures, ids.
	own func(t *testing.T, r providertest.Recording, turn *model.Turn)
	// anyID is true for a dialect whose calls may have no id: the adapter makes one.
	anyID bool

	// What the provider said, what goes back of it, and what requests mean: see providertest.Dialect.
	said     func(testing.TB, providertest.Recording) any
	repeated func(t testing.TB, body []byte) any
	request  func(testing.TB, providertest.Recording) *model.Request
	meaning  func(t testing.TB, body []byte) any

	// loops are the names of recorded exchanges of two requests, before "-1" and "-2".
	loops []string
	// resumed returns the items of the second request up to and with the results of a turn; nil = a user's
	// message, the turn, and results for its calls.
	resumed func(t testing.TB, second []byte, turn *model.Turn) []item.Item
	// loosely returns what the model said in a request, without what the recorded client left to itself.
	loosely func(t testing.TB, body []byte) any
}

// usage is what a vendor's SDK reads of the usage. Beside is true if the reasoning is not in the output.
type usage struct {
	Input, Output, Total, Reasoning, CachedInput, CacheWrite, ToolUseInput int64

	Beside bool
}

func dialects() []dialect {
	return []dialect{chatDialect(), responsesDialect(), messagesDialect(), invokedDialect(), geminiDialect(), converseDialect()}
}

// each runs a test for each dialect with its recordings.
func each(t *testing.T, test func(t *testing.T, d dialect, all []providertest.Recording)) {
	for _, d := range dialects() {
		t.Run(strings.Join(d.recordings, " "), func(t *testing.T) {
			all := providertest.Recordings(t, d.recordings...)
			for i := range all {
				if d.unwrap != nil {
					d.unwrap(t, &all[i])
				}
			}
			test(t, d, all)
		})
	}
}

// sent is a round tripper that keeps the body of a request and answers it with answer.
type sent struct {
	answer io.Reader
	status int
	body   []byte
}

func (s *sent) RoundTrip(r *http.Request) (*http.Response, error) {
	var err error
	s.body, err = io.ReadAll(r.Body)
	return &http.Response{StatusCode: s.status, Header: http.Header{}, Body: io.NopCloser(s.answer), ContentLength: -1}, err
}

func (d dialect) decode(src io.Reader, emit func(model.Delta) error) (*model.Turn, error) {
	m := d.open(wire.Endpoint{BaseURL: "http://p/v1", Transport: &sent{answer: src, status: 200}})
	return m.Stream(context.Background(), &model.Request{Model: "m"}, emit)
}

func (d dialect) encode(req *model.Request) ([]byte, error) {
	s := &sent{answer: strings.NewReader("not now"), status: 503}
	m := d.open(wire.Endpoint{BaseURL: "http://p/v1", Transport: s})
	_, err := m.Stream(context.Background(), req, func(model.Delta) error { return nil })
	if s.body != nil {
		err = nil
	}
	return s.body, err
}

func (d dialect) checks() providertest.Dialect {
	return providertest.Dialect{
		Decode: d.decode, Encode: d.encode, Said: d.said, Repeated: d.repeated, Request: d.request, Meaning: d.meaning,
	}
}

func TestRequestsHaveKeyPathAndQuery(t *testing.T) {
	const flash = ":streamGenerateContent?x=1&alt=sse"
	for _, tt := range []struct {
		d                  dialect
		model, path, field string
	}{
		{chatDialect(), "m", "/chat/completions?x=1", "Authorization"},
		{responsesDialect(), "m", "/responses?x=1", "Authorization"},
		{messagesDialect(), "m", "/messages?x=1", "X-Api-Key"},
		{geminiDialect(), "gemini-2.5-pro", "/models/gemini-2.5-pro" + flash, "X-Goog-Api-Key"},
		{geminiDialect(), "models/gemini-2.5-pro", "/models/gemini-2.5-pro" + flash, "X-Goog-Api-Key"},
		{geminiDialect(), "tunedModels/mine", "/tunedModels/mine" + flash, "X-Goog-Api-Key"},
	} {
		for _, own := range []string{"", "Api-Key"} {
			asked, keys, version := "", map[string]string{}, ""
			e := providertest.Serve(t, func(w http.ResponseWriter, r *http.Request) {
				asked, version = r.URL.String(), r.Header.Get("Anthropic-Version")
				for _, field := range []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key", "Api-Key"} {
					if key := strings.TrimPrefix(r.Header.Get(field), "Bearer "); key != "" {
						keys[field] = key
					}
				}
				w.WriteHeader(http.StatusServiceUnavailable)
			}, func(e *wire.Endpoint) {
				e.BaseURL += "/?x=1"
				e.KeyHeader, e.APIKey = own, func(context.Context) (string, error) { return "sk-key", nil }
			})
			_, _ = tt.d.open(e).Stream(t.Context(), &model.Request{Model: tt.model}, new(providertest.Heard).Emit)
			if diff := gocmp.Diff(map[string]string{cmp.Or(own, tt.field): "sk-key"}, keys); diff != "" || asked != "/v1"+tt.path {
				t.Errorf("%s: %s", asked, diff)
			}
			if (version == "2023-06-01") != (tt.d.name == model.DialectAnthropic) {
				t.Errorf("%s: version %q", asked, version)
			}
		}
	}
}

func TestSuite(t *testing.T) { // M03 M04
	for _, d := range dialects() {
		for _, a := range d.suites {
			t.Run(a.Model, func(t *testing.T) {
				if a.New == nil {
					a.New = d.open
				}
				providertest.Run(t, a)
			})
		}
	}
}

// The outcome does not depend on where the network cuts.
func TestRecordingsAtAnySplit(t *testing.T) {
	each(t, func(t *testing.T, d dialect, all []providertest.Recording) { providertest.AtAnySplit(t, all, d.decode) })
}

// The deltas tell the items of the turn, with their numbers.
func TestRecordedDeltas(t *testing.T) {
	each(t, func(t *testing.T, d dialect, all []providertest.Recording) { providertest.Deltas(t, all, d.decode) })
}

// Cut off anywhere, a stream never yields a turn that looks finished before its end, nor a call that is not
// the one of the whole stream.
func TestRecordingsCutOff(t *testing.T) { // G07
	each(t, func(t *testing.T, d dialect, all []providertest.Recording) { providertest.CutOff(t, all, d.decode) })
}

// What the API said goes back to it, block by block.
func TestRecordedAnswersAreRepeated(t *testing.T) { // M03 M05 P08
	each(t, func(t *testing.T, d dialect, all []providertest.Recording) { d.checks().RepeatsAnswers(t, all) })
}

func TestRecordedRequestsAreWritten(t *testing.T) { // M01 M02 M03 M04 M05
	each(t, func(t *testing.T, d dialect, all []providertest.Recording) {
		if d.request != nil {
			d.checks().WritesRequests(t, all)
		}
	})
}

// The turn of each recorded first request makes what the model said in the second request of the same exchange.
func TestRecordedToolLoops(t *testing.T) { // M03 M05 M08 P08
	each(t, func(t *testing.T, d dialect, all []providertest.Recording) {
		for _, name := range d.loops {
			t.Run(name, func(t *testing.T) {
				second := providertest.Named(t, all, name+"-2").Request.Body
				turn := providertest.Decode(d.decode).Run(bytes.NewReader(providertest.Named(t, all, name+"-1").Body)).Turn
				for i := range turn.Items { // as the driver marks them
					if turn.Items[i].Native.JSON != nil {
						turn.Items[i].Native.Provider = "p"
					}
				}
				resumed := d.resumed
				if resumed == nil {
					resumed = answered
				}
				body, err := d.encode(&model.Request{Model: "m", Items: resumed(t, second, turn)})
				if err != nil {
					t.Fatal(err)
				}
				if diff := gocmp.Diff(d.loosely(t, second), d.loosely(t, body)); diff != "" {
					t.Error(diff)
				}
			})
		}
	})
}

func answered(_ testing.TB, _ []byte, turn *model.Turn) []item.Item {
	items := append([]item.Item{item.NewText(item.User, "x")}, turn.Items...)
	for _, c := range turn.Calls {
		items = append(items, item.NewResult(c.ID, "ok", false))
	}
	return items
}

// What a vendor's SDK reads out of an answer is what the adapter reads.
func TestRecordings(t *testing.T) { // M01 M02 M03 M04 M06
	each(t, func(t *testing.T, d dialect, all []providertest.Recording) {
		for _, r := range all {
			t.Run(r.Name, func(t *testing.T) {
				m := d.open(providertest.Serve(t, providertest.Answer(r.Response.Status, r.Response.Headers, string(r.Body))))
				var h providertest.Heard
				turn, err := m.Stream(t.Context(), &model.Request{Model: "m"}, h.Emit)
				d.check(t, r, turn, &h, err)
			})
		}
	})
}

func (d dialect) check(t *testing.T, r providertest.Recording, turn *model.Turn, h *providertest.Heard, err error) {
	t.Helper()
	want := r.Expected
	if want.Error != nil {
		e, is := errors.AsType[*model.Error](err)
		if !is || e.Status != want.Error.Status || e.Message != want.Error.Message || e.Class == "" || len(e.Body) == 0 || e.Dialect != d.name {
			t.Errorf("error %#v, want %+v", err, want.Error)
		}
		if d.anyID && is && e.Code != want.Error.Type {
			t.Errorf("code %q, want %q", e.Code, want.Error.Type)
		}
	} else if err != nil {
		t.Fatal(err)
	}
	if h.Text != want.Text || h.Reasoning != want.Reasoning || !same(want.Refusal, h.Refusal) {
		t.Errorf("text %q, want %q\nreasoning %q, want %q\nrefusal %q", h.Text, want.Text, h.Reasoning, want.Reasoning, h.Refusal)
	}
	if turn == nil {
		if want.Error == nil || want.Error.InStream {
			t.Error("no turn")
		}
		return
	}
	if turn.Text() != want.Text || !same(want.ID, turn.ID) || !same(want.Model, turn.Model) {
		t.Errorf("id %q, model %q, text %q", turn.ID, turn.Model, turn.Text())
	}
	d.checkCalls(t, want, turn)
	if want.Error != nil {
		return
	}
	raw := want.FinishReason.Raw
	if string(turn.Stop) != want.FinishReason.Normalized || !same(raw, turn.RawStop) && (raw != nil || !d.anyID || turn.RawStop == "") {
		t.Errorf("stop %q of %q, want %+v", turn.Stop, turn.RawStop, want.FinishReason)
	}
	var used model.Usage
	if u := want.Usage; u != nil {
		included := u.Semantics.OutputIncludesReasoning
		beside := included != nil && !*included
		used = d.usage(usage{u.Input, u.Output, u.Total, u.Reasoning, u.CachedInput, u.CacheWrite, u.ToolUseInput, beside})
	}
	if diff := gocmp.Diff(used, turn.Usage); diff != "" {
		t.Error("usage", diff)
	}
	d.own(t, r, turn)
}

// same reports whether a text is the one that is wanted; nil = none.
func same(want *string, got string) bool {
	return want == nil && got == "" || want != nil && *want == got
}

func (d dialect) checkCalls(t *testing.T, want providertest.Expected, turn *model.Turn) {
	t.Helper()
	calls := providertest.OfKind(turn.Items, item.ToolCall)
	if len(turn.Calls) != len(want.ToolCalls) || len(calls) != len(want.ToolCalls) {
		t.Fatalf("%d calls, %d complete, want %d", len(turn.Calls), len(calls), len(want.ToolCalls))
	}
	ids := map[string]bool{}
	for i, w := range want.ToolCalls {
		c := turn.Calls[i]
		written := w.ArgumentsRaw != nil && c.Arguments == *w.ArgumentsRaw ||
			w.ArgumentsRaw == nil && providertest.SameJSON(t, c.Arguments, string(w.Arguments))
		made := d.anyID && w.ID == nil && c.ID != "" && !ids[c.ID]
		if !made && !same(w.ID, c.ID) || c.Name != w.Name || !written || !c.Complete {
			t.Errorf("call %d: %+v, want %s(%s)", i, c, w.Name, w.Arguments)
		}
		ids[c.ID] = true
	}
}

// checkSignatures compares the signatures of a turn's reasoning, as a dialect finds them in native forms.
func checkSignatures(
	t *testing.T, want providertest.Expected, turn *model.Turn, find func(native []byte) (signature string, redacted bool),
) {
	t.Helper()
	var signatures []string
	hidden := 0
	for _, it := range providertest.OfKind(turn.Items, item.Reasoning) {
		if signature, redacted := find(it.Native.JSON); redacted {
			hidden++
		} else if signature != "" {
			signatures = append(signatures, signature)
		}
	}
	if strings.Join(signatures, "\n") != strings.Join(want.ReasoningSignatures, "\n") || hidden != want.RedactedReasoning {
		t.Errorf("signatures %q, want %q; %d redacted, want %d", signatures, want.ReasoningSignatures, hidden, want.RedactedReasoning)
	}
}

// checkHosted compares what a turn has of the provider's own tools with what it should have.
func checkHosted(t *testing.T, want providertest.Expected, others []item.Item, is func(native []byte, kind, id string) bool) {
	t.Helper()
	if len(others) != len(want.ServerToolCalls) {
		t.Fatalf("%d entries of the provider's own tools, want %d", len(others), len(want.ServerToolCalls))
	}
	for i, w := range want.ServerToolCalls {
		if !is(others[i].Native.JSON, w.Type, w.ID) {
			t.Errorf("%s, want %+v", others[i].Native.JSON, w)
		}
	}
}

// twoMessages returns the second of two messages of a request.
func twoMessages(t testing.TB, body []byte) map[string]any {
	t.Helper()
	messages := providertest.Object(t, body)["messages"].([]any)
	if len(messages) != 2 {
		t.Fatalf("%d messages in %s", len(messages), body)
	}
	return messages[1].(map[string]any)
}

// dataLines calls event with the data of each event of a recorded stream.
func dataLines(r providertest.Recording, event func(data []byte)) {
	for line := range bytes.Lines(r.Body) {
		if data, ok := bytes.CutPrefix(bytes.TrimSpace(line), []byte("data:")); ok {
			event(data)
		}
	}
}

// turned marks the items of a message as the answer of that number, if the model wrote it.
func turned(items []item.Item, role item.Role, number int) []item.Item {
	if role == item.Assistant {
		item.SetTurn(items, number)
	}
	return items
}

// choiceModes are the modes of a tool choice in the dialects of Claude.
func choiceModes() map[string]model.ToolChoiceMode {
	return map[string]model.ToolChoiceMode{
		"auto": model.ChooseAuto, "any": model.ChooseRequired, "tool": model.ChooseNamed, "none": model.ChooseNone,
	}
}

// offered is a tool that a recorded request offers.
func offered(name, description string, arguments json.RawMessage, strict *bool) model.Tool {
	return model.Tool{Strict: strict, Definition: tool.Definition{Name: name, Description: description, InputSchema: arguments}}
}
