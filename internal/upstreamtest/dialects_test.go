package upstreamtest_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-gateway/turnpike/internal/provider/anthropic"
	"github.com/turnpike-gateway/turnpike/internal/provider/providertest"
	"github.com/turnpike-gateway/turnpike/internal/provider/wire"
	"github.com/turnpike-gateway/turnpike/internal/sse"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

type object = map[string]any

// send posts a body to a dialect.
func send(t *testing.T, u *upstreamtest.Upstream, path, body string) (int, http.Header, []byte) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, u.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Anthropic-Version", "2023-06-01")
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+upstreamtest.BedrockAPIKey)
	resp, err := (&http.Client{Transport: u.Transport()}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Header, answer
}

func parse(t *testing.T, data []byte) object {
	t.Helper()
	var o object
	if err := json.Unmarshal(data, &o); err != nil {
		t.Fatalf("%v in %s", err, data)
	}
	return o
}

// events returns the data of a stream's events; [DONE] is left out. It checks
// that events with a name have it as their type.
func events(t *testing.T, stream []byte) []object {
	t.Helper()
	var all []object
	r := sse.NewReader(bytes.NewReader(stream), sse.ReaderOptions{})
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		if string(e.Data) == "[DONE]" {
			continue
		}
		o := parse(t, e.Data)
		if len(e.Name) > 0 && o["type"] != string(e.Name) {
			t.Errorf("event %q has data %s", e.Name, e.Data)
		}
		all = append(all, o)
	}
}

const (
	messagesBody  = `{"model":"m","max_tokens":100,"messages":[{"role":"user","content":"hi"}]%s}`
	responsesBody = `{"model":"m","input":"hi","include":["reasoning.encrypted_content"]%s}`
	inEveryKind   = "reasoning Hm.\nreasoning \" Well.\"\nreasoning\ntext Let me\ntext \" see 👋\"\ncall c1 search {\"q\":\"日本\"}\ncall c2 list\nusage 12 5\nagain"
)

func TestAMessageIsTheSameAsOneObjectAndAsAStream(t *testing.T) {
	for _, piece := range []int{0, 1, 7} {
		u := upstreamtest.New(turnpiketest.NewScript(t, inEveryKind), upstreamtest.Options{Strict: true, Piece: piece})
		t.Cleanup(u.Close)
		_, _, body := send(t, u, "/messages", fmt.Sprintf(messagesBody, ""))
		whole := parse(t, body)
		_, header, stream := send(t, u, "/messages", fmt.Sprintf(messagesBody, `,"stream":true`))
		if header.Get("Content-Type") != "text/event-stream" {
			t.Error(header)
		}
		all := events(t, stream)
		first, last := all[0], all[len(all)-1]
		if first["type"] != "message_start" || last["type"] != "message_stop" {
			t.Errorf("begins with %v and ends with %v", first, last)
		}
		joined := joinMessage(t, all)
		// Signatures depend on the number of the answer.
		for _, m := range []object{whole, joined} {
			delete(m, "id")
			for _, b := range m["content"].([]any) {
				if b := b.(object); b["type"] == "thinking" {
					if secret, _ := b["signature"].(string); len(secret) < 20 {
						t.Errorf("signature %q", secret)
					}
					delete(b, "signature")
				} else if b["type"] == "redacted_thinking" {
					delete(b, "data")
				}
			}
		}
		if d := cmp.Diff(whole, joined); d != "" {
			t.Error(d)
		}
		if whole["stop_reason"] != "tool_use" || len(whole["content"].([]any)) != 5 {
			t.Errorf("%v", whole)
		}
	}
}

// joinMessage puts the events of a stream together, as the documentation says.
func joinMessage(t *testing.T, all []object) object {
	t.Helper()
	var message object
	var blocks []any
	var input strings.Builder
	for _, e := range all {
		switch e["type"] {
		case "message_start":
			message = e["message"].(object)
		case "content_block_start":
			if int(e["index"].(float64)) != len(blocks) {
				t.Errorf("block %v is the %dth", e["index"], len(blocks))
			}
			blocks = append(blocks, e["content_block"])
			input.Reset()
		case "content_block_delta":
			b, d := blocks[len(blocks)-1].(object), e["delta"].(object)
			for delta, name := range map[string]string{"text_delta": "text", "thinking_delta": "thinking", "signature_delta": "signature"} {
				if d["type"] == delta {
					b[name] = b[name].(string) + d[name].(string)
				}
			}
			if d["type"] == "input_json_delta" {
				input.WriteString(d["partial_json"].(string))
			}
		case "content_block_stop":
			if b := blocks[len(blocks)-1].(object); b["type"] == "tool_use" && input.Len() > 0 {
				b["input"] = parse(t, []byte(input.String()))
			}
		case "message_delta":
			for name, v := range e["delta"].(object) {
				message[name] = v
			}
			message["usage"] = e["usage"]
		}
	}
	message["content"] = blocks
	return message
}

func TestAResponseIsTheSameAsOneObjectAndAsAStream(t *testing.T) {
	for _, piece := range []int{0, 1, 7} {
		u := upstreamtest.New(turnpiketest.NewScript(t, inEveryKind), upstreamtest.Options{Strict: true, Piece: piece})
		t.Cleanup(u.Close)
		_, _, body := send(t, u, "/responses", fmt.Sprintf(responsesBody, ""))
		whole := parse(t, body)
		_, _, stream := send(t, u, "/responses", fmt.Sprintf(responsesBody, `,"stream":true`))
		all := events(t, stream)
		var output []any
		deltas := map[string]string{}
		for i, e := range all {
			if int(e["sequence_number"].(float64)) != i {
				t.Errorf("event %d: %v", i, e)
			}
			switch e["type"] {
			case "response.output_text.delta", "response.reasoning_summary_text.delta", "response.function_call_arguments.delta":
				deltas[e["item_id"].(string)] += e["delta"].(string)
			case "response.output_item.done":
				output = append(output, e["item"])
			}
		}
		last := all[len(all)-1]
		if all[0]["type"] != "response.created" || last["type"] != "response.completed" {
			t.Errorf("from %v to %v", all[0], last)
		}
		final := last["response"].(object)
		if d := cmp.Diff(final["output"], any(output)); d != "" {
			t.Error(d)
		}
		for i, want := range []string{"Hm. Well.", "", "Let me see 👋", `{"q":"日本"}`, ""} {
			if got := deltas[output[i].(object)["id"].(string)]; got != want {
				t.Errorf("item %d: %q", i, got)
			}
		}
		// Ids and encrypted content depend on the number of the answer.
		plain := func(r object) string {
			delete(r, "created_at")
			delete(r, "completed_at")
			delete(r, "id")
			for _, it := range r["output"].([]any) {
				it := it.(object)
				if c, ok := it["encrypted_content"].(string); it["type"] == "reasoning" && (!ok || len(c) < 20) {
					t.Errorf("reasoning without encrypted content: %v", it)
				}
				delete(it, "encrypted_content")
				delete(it, "id")
			}
			out, _ := json.Marshal(r)
			return string(out)
		}
		if a, b := plain(whole), plain(final); a != b {
			t.Error(cmp.Diff(a, b))
		}
	}
}

// What the fakes send has the members that the real providers send.
func TestEventsHaveTheMembersOfRecordedOnes(t *testing.T) {
	for _, row := range []struct {
		path, body, dialect string
		// own are members that recorded events need not have: newer ones, and
		// those of other models.
		own []string
		// not are recorded members that the fake does not send.
		not []string
	}{
		{"/messages", messagesBody, "anthropic", nil,
			[]string{"message.usage.cache_creation", "message.usage.service_tier", "message.usage.inference_geo", "content_block.caller",
				"message.stop_details", "delta.stop_details", "delta.container", "usage.output_tokens_details", "usage.server_tool_use",
				"context_management", "message.usage.output_tokens_details", "usage.iterations", "message.usage.iterations", "message.container", "message.context_management", "usage.service_tier", "usage.inference_geo", "usage.cache_creation"}},
		{"/responses", responsesBody, "openai-responses", []string{"name"},
			[]string{"obfuscation", "response.content_filters", "response.moderation", "response.prompt_cache_retention", "response.billing",
				"response.tool_usage", "response.access_programs", "item.phase", "item.content", "item.status", "item.encrypted_content"}},
	} {
		t.Run(row.dialect, func(t *testing.T) {
			recorded := map[string]map[string]int{} // by type of event: how often a member was there
			count := map[string]int{}
			for _, r := range providertest.Recordings(t, row.dialect) {
				if !r.Streamed || r.Response.Status != http.StatusOK || strings.Contains(r.Name, "xai") || strings.Contains(r.Name, "deepseek") || strings.Contains(r.Name, "openrouter") {
					continue
				}
				for _, e := range events(t, r.Body) {
					kind := kindOf(e)
					if recorded[kind] == nil {
						recorded[kind] = map[string]int{}
					}
					count[kind]++
					for _, m := range membersOf("", e, 3) {
						recorded[kind][m]++
					}
				}
			}
			u := upstreamtest.New(turnpiketest.NewScript(t, inEveryKind), upstreamtest.Options{Strict: true})
			defer u.Close()
			_, _, stream := send(t, u, row.path, fmt.Sprintf(row.body, `,"stream":true`))
			compared := 0
			for _, e := range events(t, stream) {
				kind := kindOf(e)
				if recorded[kind] == nil {
					continue
				}
				compared++
				sent := membersOf("", e, 3)
				for _, m := range sent {
					if recorded[kind][m] == 0 && !slices.Contains(row.own, m) {
						t.Errorf("%s has %s, which no recorded one has", kind, m)
					}
				}
				for m, n := range recorded[kind] {
					if n == count[kind] && !slices.Contains(sent, m) && !slices.Contains(row.not, m) {
						t.Errorf("%s has no %s, which every recorded one has", kind, m)
					}
				}
			}
			if compared < 10 {
				t.Errorf("only %d events were compared", compared)
			}
		})
	}
}

// kindOf names the type of an event and of what it is about.
func kindOf(e object) string {
	kind := fmt.Sprint(e["type"])
	for _, name := range []string{"item", "content_block", "delta", "part"} {
		if o, ok := e[name].(object); ok {
			kind += " " + fmt.Sprint(o["type"])
		}
	}
	return kind
}

// membersOf returns the paths of the members down to a depth.
func membersOf(prefix string, o object, depth int) []string {
	var all []string
	for name, v := range o {
		all = append(all, prefix+name)
		if inner, ok := v.(object); ok && depth > 1 && name != "input" && name != "metadata" && name != "text" && name != "reasoning" {
			all = append(all, membersOf(prefix+name+".", inner, depth-1)...)
		}
	}
	return all
}

func messages(t *testing.T, story string, o upstreamtest.Options) (*upstreamtest.Upstream, model.Model) {
	u := upstreamtest.New(turnpiketest.NewScript(t, story), o)
	t.Cleanup(u.Close)
	return u, anthropic.New(wire.Endpoint{BaseURL: u.URL, Transport: u.Transport()}, anthropic.Options{})
}

// openedWithText joins a delta that opens a call and says nothing with the next of
// the call: dialects differ in whether they send the two together.
func openedWithText(deltas []model.Delta) []model.Delta {
	var out []model.Delta
	for _, d := range deltas {
		if d.Kind == model.DoneDelta { // a script does not mark the ends of items
			continue
		}
		if n := len(out) - 1; n >= 0 && out[n].Item == d.Item && out[n].Text == "" {
			out[n].Text = d.Text
			continue
		}
		out = append(out, d)
	}
	return out
}

// An adapter of the Messages dialect reads what a story says, at any split.
func TestAnAdapterReadsMessages(t *testing.T) {
	for _, story := range []string{
		"reasoning Hm.\ntext Looking 👋\ntext \" it\\nup.\"\ncall c1 search {\"q\":\"日本\"}\ncall c3 list {}\nusage 12 5", "text a\nstop length", "text a\nstop content_filter",
		"call a x {}\ncall b x {\ncut", "text a\nfail 529 overloaded", "fail 429 retry-after 3 slow down",
	} {
		want, said, wantErr := stream(t.Context(), turnpiketest.NewScript(t, story))
		for _, o := range []upstreamtest.Options{{Strict: true}, {Strict: true, Piece: 1}, {Strict: true, Piece: 7}, {Strict: true, Piece: 64, Gap: time.Millisecond}} {
			t.Run(fmt.Sprintf("%.12q in pieces of %d", story, o.Piece), func(t *testing.T) {
				_, m := messages(t, story, o)
				var deltas []model.Delta
				got, err := m.Stream(t.Context(), &model.Request{Model: "m", Items: []item.Item{item.NewText(item.User, "hi")}},
					func(d model.Delta) error { deltas = append(deltas, d); return nil })
				var a, b *model.Error
				if errors.As(wantErr, &a) != errors.As(err, &b) || a != nil && (a.Class != b.Class || a.RetryAfter != b.RetryAfter) {
					t.Fatalf("error %v, want %v", err, wantErr)
				}
				if d := cmp.Diff(said, openedWithText(deltas)); d != "" {
					t.Error(d)
				}
				if want == nil {
					return
				}
				if d := cmp.Diff(want.Calls, got.Calls); d != "" {
					t.Error(d)
				}
				if got.Stop != want.Stop || wantErr == nil && got.Usage != want.Usage || got.Text() != want.Text() {
					t.Errorf("%+v, want %+v", got, want)
				}
			})
		}
	}
}

// Ten rounds with thinking, every byte of it checked: see also the table of
// refusals.
func TestThinkingComesBackUnchanged(t *testing.T) { // P08
	var story strings.Builder
	for i := range 10 {
		fmt.Fprintf(&story, "reasoning Thought %d.\nreasoning\ntext Look.\ncall c%d f {\"n\":%d}\ncall d%d f {}\n\n", i, i, i, i)
	}
	story.WriteString("text Done.\n")
	u, m := messages(t, story.String(), upstreamtest.Options{Strict: true, Piece: 3})
	items := []item.Item{item.NewText(item.User, "go")}
	req := model.Request{Model: "claude-sonnet-4-5", Options: model.Options{Effort: "low"},
		Tools: []model.Tool{{Definition: tool.Definition{Name: "f", InputSchema: json.RawMessage(`{"type":"object"}`)}}}}
	for range 11 {
		req.Items = items
		turn, err := m.Stream(t.Context(), &req, func(model.Delta) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		items = append(items, turn.Items...)
		for _, c := range turn.Calls {
			items = append(items, item.NewResult(c.ID, "ok", false))
		}
	}
	last := string(u.Requests()[10].Body)
	if strings.Count(last, `"signature":"`) != 10 || strings.Count(last, `"type":"redacted_thinking"`) != 10 || !strings.Contains(last, `"budget_tokens"`) {
		t.Error(last)
	}
}

func TestErrorsHaveTheFormOfTheirDialect(t *testing.T) {
	const story = "fail 529 retry-after 2 busy\n\ntext a\nfail 500 broken\n\nfail 400 this exceeds the context window\n"
	for _, row := range []struct {
		path, body, whole, streamed, tooLong string
		header                               string
	}{
		{"/messages", messagesBody, `{"error":{"message":"busy","type":"overloaded_error"},"request_id":"req_script","type":"error"}`,
			"event: error\ndata: {\"error\":{\"message\":\"broken\",\"type\":\"api_error\"},\"request_id\":\"req_script\",\"type\":\"error\"}\n\n", "invalid_request_error", "Request-Id"},
		{"/responses", responsesBody, `{"error":{"message":"busy","type":"server_error","param":null,"code":"server_error"}}`,
			`"error":{"code":"server_error","message":"broken"}`, `"code":"context_length_exceeded"`, "Content-Type"},
	} {
		u := upstreamtest.New(turnpiketest.NewScript(t, story), upstreamtest.Options{})
		t.Cleanup(u.Close)
		status, header, body := send(t, u, row.path, fmt.Sprintf(row.body, ""))
		if status != 529 || header.Get("Retry-After") != "2" || header.Get(row.header) == "" || string(body) != row.whole {
			t.Errorf("%d %v %s", status, header, body)
		}
		status, _, body = send(t, u, row.path, fmt.Sprintf(row.body, `,"stream":true`))
		if status != http.StatusOK || !strings.Contains(string(body), row.streamed) {
			t.Errorf("%d %s", status, body)
		}
		if _, _, body = send(t, u, row.path, fmt.Sprintf(row.body, "")); !strings.Contains(string(body), row.tooLong) {
			t.Errorf("%s", body)
		}
	}
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
