package providertest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// Column is a kind of provider in [Features].
type Column string

// The kinds of providers, in the order of the columns.
const (
	OpenAI     Column = "Chat Completions, OpenAI"
	Compatible Column = "Chat Completions, compatible"
	Responses  Column = "Responses"
	Anthropic  Column = "Anthropic Messages"
	Gemini     Column = "Gemini"
	Bedrock    Column = "Bedrock Converse"
)

// Columns returns the kinds of providers.
func Columns() []Column {
	return []Column{OpenAI, Compatible, Responses, Anthropic, Gemini, Bedrock}
}

// Support says what becomes of a feature. The zero value means that the feature is
// dropped: the request is the same as without it.
type Support struct {
	// Sent is JSON that the provider's request has because of the feature; null
	// stands for any value. "" = dropped.
	Sent string

	// Without is a text that the request does not have because of the feature.
	Without string

	// Omitted is true for a feature that the dialect expresses by leaving something out of
	// the request: Without.
	Omitted bool

	// Note says what the feature is replaced by; "" = nothing, or the dialect has it.
	Note string

	// Refused is a part of the error of a request with the feature, which is not
	// sent at all.
	Refused string

	// Read is how the adapter reads a feature of answers.
	Read item.PartKind
}

// Feature is a row: something that a request of another dialect can have, or an
// answer.
type Feature struct {
	Name    string
	Support map[Column]Support

	setup func(*model.Request) // what the feature needs, also in the request without it
	probe func(*model.Request) // adds the feature
	// member is the name of the client's member that is reported as dropped.
	member string

	// proof proves the row where comparing two requests does not.
	proof func(a Adapter, t *testing.T, s Support)
}

// all is the same support in several columns.
func all(s Support, columns ...Column) map[Column]Support {
	m := map[Column]Support{}
	for _, c := range columns {
		m[c] = s
	}
	return m
}

// chat is the support of both kinds of Chat Completions, and that of the others.
func chat(s, responses, anthropic string) map[Column]Support {
	return map[Column]Support{OpenAI: {Sent: s}, Compatible: {Sent: s}, Responses: {Sent: responses}, Anthropic: {Sent: anthropic}}
}

// with changes the support of one column.
func (f Feature) with(c Column, s Support) Feature {
	f.Support[c] = s
	return f
}

func pointer[T any](v T) *T { return &v }

// userParts returns a probe that adds parts to the message.
func userParts(parts ...item.Part) func(*model.Request) {
	return func(req *model.Request) { req.Items[0].Parts = append(req.Items[0].Parts, parts...) }
}

// before returns a probe that adds an item before the message.
func before(it item.Item) func(*model.Request) {
	return func(req *model.Request) { req.Items = append([]item.Item{it}, req.Items...) }
}

// withCalls adds tools and a turn with the calls p1 and p2 and their results.
func withCalls(req *model.Request) {
	withTools(req)
	for _, id := range []string{"p1", "p2"} {
		call := item.NewCall(id, "f", "{}")
		call.Turn = 1
		req.Items = append(req.Items, call)
	}
	req.Items = append(req.Items, item.NewResult("p1", "one", false), item.NewResult("p2", "two", false))
}

// lastResult returns a probe that changes the last result.
func lastResult(change func(*item.Item)) func(*model.Request) {
	return func(req *model.Request) { change(&req.Items[len(req.Items)-1]) }
}

// png is the beginning of an image.
const png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="

// Features returns the table of what becomes of a request of another dialect.
// [Run] proves it row by row.
func Features() []Feature {
	all := slices.Concat(contentFeatures(), toolFeatures(), answerFeatures(), settingFeatures())
	for column, supports := range map[Column]map[string]Support{Gemini: geminiSupport(), Bedrock: bedrockSupport()} {
		for _, f := range all {
			if s, ok := supports[f.Name]; ok {
				f.Support[column] = s
			}
		}
	}
	return all
}

func contentFeatures() []Feature {
	return []Feature{
		{Name: "System message", probe: before(item.NewText(item.System, "rule")),
			Support: chat(`{"role":"system","content":"rule"}`, `{"role":"system","content":[{"type":"input_text","text":"rule"}]}`, `{"system":[{"type":"text","text":"rule"}]}`)},
		Feature{Name: "Developer message", probe: before(item.NewText(item.Developer, "rule")),
			Support: all(Support{Sent: `{"role":"system","content":"rule"}`, Note: "system message"}, OpenAI, Compatible)}.
			with(Responses, Support{Sent: `{"role":"developer","content":[{"type":"input_text","text":"rule"}]}`}).
			with(Anthropic, Support{Sent: `{"system":[{"type":"text","text":"rule"}]}`, Note: "system text"}),
		{Name: "Image, by https URL", probe: userParts(item.Part{Kind: item.Image, URL: "https://example.com/i.png"}),
			Support: chat(`{"type":"image_url","image_url":{"url":"https://example.com/i.png"}}`, `{"type":"input_image","image_url":"https://example.com/i.png"}`, `{"type":"image","source":{"type":"url","url":"https://example.com/i.png"}}`)},
		{Name: "Image, in the request", probe: userParts(item.Part{Kind: item.Image, Data: png, MIMEType: "image/png"}),
			Support: chat(`{"type":"image_url","image_url":{"url":"data:image/png;base64,`+png+`"}}`, `{"type":"input_image","image_url":"data:image/png;base64,`+png+`"}`, `{"type":"image","source":{"type":"base64","media_type":"image/png","data":"`+png+`"}}`)},
		{Name: "PDF file, in the request", probe: userParts(item.Part{Kind: item.File, Data: "JVBERi0=", MIMEType: "application/pdf", Name: "a.pdf"}),
			Support: chat(`{"type":"file","file":{"file_data":"data:application/pdf;base64,JVBERi0=","filename":"a.pdf"}}`, `{"type":"input_file","file_data":"data:application/pdf;base64,JVBERi0=","filename":"a.pdf"}`, `{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="},"title":"a.pdf"}`)},
		Feature{Name: "Audio, in the request", probe: userParts(item.Part{Kind: item.Audio, Data: "UklGRg==", MIMEType: "audio/wav"}),
			Support: all(Support{Sent: `{"type":"input_audio","input_audio":{"data":"UklGRg==","format":"wav"}}`}, OpenAI, Compatible)}.
			with(Responses, Support{Sent: `{"type":"input_text","text":"[audio; type: audio/wav; 4 bytes, not shown]"}`, Note: "text that says so"}).
			with(Anthropic, Support{Sent: `{"type":"text","text":"[audio; type: audio/wav; 4 bytes, not shown]"}`, Note: "text that says so"}),
	}
}

func toolFeatures() []Feature {
	result := func(p item.Part) func(*model.Request) {
		return lastResult(func(it *item.Item) { it.Parts = []item.Part{p} })
	}
	image := result(item.Part{Kind: item.Image, Data: png, MIMEType: "image/png"})
	file := result(item.Part{Kind: item.File, Data: "JVBERi0=", MIMEType: "application/pdf", Name: "a.pdf"})
	audio := result(item.Part{Kind: item.Audio, Data: "UklGRg==", MIMEType: "audio/wav"})
	return []Feature{
		{Name: "Tools", probe: withTools,
			Support: chat(`{"tools":[{"type":"function","function":{"name":"f","description":"a tool","parameters":{"type":"object","properties":{"n":{"type":"integer"}}}}},{"function":{"name":"g"}}]}`,
				`{"tools":[{"type":"function","name":"f","description":"a tool","parameters":{"type":"object","properties":{"n":{"type":"integer"}}}},{"name":"g"}]}`,
				`{"tools":[{"name":"f","description":"a tool","input_schema":{"type":"object","properties":{"n":{"type":"integer"}}}},{"name":"g"}]}`)},
		{Name: "Tool choice: required", setup: withTools, probe: func(r *model.Request) { r.ToolChoice.Mode = "required" },
			Support: chat(`{"tool_choice":"required"}`, `{"tool_choice":"required"}`, `{"tool_choice":{"type":"any"}}`)},
		{Name: "Tool choice: one tool", setup: withTools, probe: func(r *model.Request) { r.ToolChoice = model.ToolChoice{Mode: "named", Name: "g"} },
			Support: chat(`{"tool_choice":{"type":"function","function":{"name":"g"}}}`, `{"tool_choice":{"type":"function","name":"g"}}`, `{"tool_choice":{"type":"tool","name":"g"}}`)},
		{Name: "Tool choice: none", setup: withTools, probe: func(r *model.Request) { r.ToolChoice.Mode = "none" },
			Support: chat(`{"tool_choice":"none"}`, `{"tool_choice":"none"}`, `{"tool_choice":{"type":"none"}}`)},
		{Name: "Tool choice: some of the tools", setup: withTools,
			probe: func(r *model.Request) { r.ToolChoice = model.ToolChoice{Mode: "required", Only: []string{"g"}} },
			Support: map[Column]Support{
				OpenAI:     {Sent: `{"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"required","tools":[{"type":"function","function":{"name":"g"}}]}}}`},
				Compatible: {Sent: `{"tool_choice":"required"}`, Without: `"name":"f"`, Note: "only these are offered"},
				Responses:  {Sent: `{"tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"g"}]}}`},
				Anthropic:  {Sent: `{"tool_choice":{"type":"any"}}`, Without: `"name":"f"`, Note: "only these are offered"},
			}},
		{Name: "One call at a time", setup: withTools, probe: func(r *model.Request) { r.ParallelCalls = pointer(false) },
			Support: chat(`{"parallel_tool_calls":false}`, `{"parallel_tool_calls":false}`, `{"tool_choice":{"type":"auto","disable_parallel_tool_use":true}}`)},
		{Name: "Results of parallel calls", probe: withCalls,
			Support: chat(`{"messages":[{"role":"assistant","tool_calls":[{"id":"p1"},{"id":"p2"}]},{"role":"tool","tool_call_id":"p1","content":"one"},{"role":"tool","tool_call_id":"p2","content":"two"}]}`,
				`{"input":[{"type":"function_call","call_id":"p1"},{"type":"function_call","call_id":"p2"},{"type":"function_call_output","call_id":"p1","output":"one"},{"type":"function_call_output","call_id":"p2","output":"two"}]}`,
				`{"role":"user","content":[{"type":"tool_result","tool_use_id":"p1"},{"type":"tool_result","tool_use_id":"p2"}]}`)},
		Feature{Name: "Mark of a result that is an error", setup: withCalls, probe: lastResult(func(it *item.Item) { it.IsError = true }),
			Support: all(Support{Note: "only its text"}, OpenAI, Compatible, Responses)}.
			with(Anthropic, Support{Sent: `{"type":"tool_result","tool_use_id":"p2","is_error":true}`}),
		Feature{Name: "Image in a tool result", setup: withCalls, probe: image, // C25
			Support: all(Support{
				Sent: `{"messages":[{"role":"tool","tool_call_id":"p2",` +
					`"content":"[image; type: image/png; description: in the message after the results]"},` +
					`{"role":"user","content":[{"type":"text"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + png + `"}}]}]}`,
				Note: "message of the user after the results",
			}, OpenAI, Compatible)}.
			with(Responses, Support{Sent: `{"type":"function_call_output","call_id":"p2","output":[{"type":"input_image","image_url":"data:image/png;base64,` + png + `"}]}`}).
			with(Anthropic, Support{Sent: `{"type":"tool_result","tool_use_id":"p2","content":[{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + png + `"}}]}`}),
		Feature{Name: "PDF file in a tool result", setup: withCalls, probe: file,
			Support: all(Support{Sent: `{"role":"tool","tool_call_id":"p2","content":"[file; name: a.pdf; type: application/pdf; 5 bytes, not shown]"}`, Without: "JVBERi0=", Note: "text that says so"}, OpenAI, Compatible)}.
			with(Responses, Support{Sent: `{"type":"function_call_output","call_id":"p2","output":[{"type":"input_file","filename":"a.pdf","file_data":"data:application/pdf;base64,JVBERi0="}]}`}).
			with(Anthropic, Support{Sent: `{"type":"tool_result","tool_use_id":"p2","content":[{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}}]}`}),
		Feature{Name: "Audio in a tool result", setup: withCalls, probe: audio,
			Support: all(Support{Sent: `{"role":"tool","tool_call_id":"p2","content":"[audio; type: audio/wav; 4 bytes, not shown]"}`, Without: "UklGRg==", Note: "text that says so"}, OpenAI, Compatible)}.
			with(Responses, Support{Sent: `{"type":"function_call_output","call_id":"p2","output":"[audio; type: audio/wav; 4 bytes, not shown]"}`, Without: "UklGRg==", Note: "text that says so"}).
			with(Anthropic, Support{Sent: `{"type":"tool_result","tool_use_id":"p2","content":[{"type":"text","text":"[audio; type: audio/wav; 4 bytes, not shown]"}]}`, Without: "UklGRg==", Note: "text that says so"}),
	}
}

func settingFeatures() []Feature {
	number := func(name string, n string, columns ...Column) map[Column]Support {
		return all(Support{Sent: `{"` + name + `":` + n + `}`}, columns...)
	}
	schema := json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"required":["a"],"additionalProperties":false}`)
	return []Feature{
		{Name: "Structured output by a JSON schema", member: "response_format",
			probe: func(r *model.Request) {
				r.Format = model.Format{Type: "json_schema", Name: "n", Schema: schema, Strict: pointer(true)}
			},
			Support: chat(`{"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"required":["a"]}}}}`, `{"text":{"format":{"type":"json_schema","name":"n","strict":true,"schema":{"required":["a"]}}}}`, `{"output_config":{"format":{"type":"json_schema","schema":{"required":["a"]}}}}`)},
		Feature{Name: "JSON output without a schema", member: "response_format", setup: userParts(item.Part{Kind: item.Text, Text: " Use JSON."}),
			probe:   func(r *model.Request) { r.Format.Type = "json_object" },
			Support: all(Support{Sent: `{"response_format":{"type":"json_object"}}`}, OpenAI, Compatible)}.
			with(Responses, Support{Sent: `{"text":{"format":{"type":"json_object"}}}`}),
		Feature{Name: "Reasoning effort", member: "reasoning_effort", probe: func(r *model.Request) { r.Effort = "high" }, // M08
			Support: all(Support{Sent: `{"reasoning_effort":"high"}`}, OpenAI, Compatible)}.
			with(Responses, Support{Sent: `{"reasoning":{"effort":"high"}}`}).
			with(Anthropic, Support{Sent: `{"thinking":{"type":null}}`, Note: "a number of tokens; effort for models that take it"}),
		Feature{Name: "Output limit", probe: func(r *model.Request) { r.MaxTokens = 321 },
			Support: number("max_tokens", "321", Compatible, Anthropic)}.
			with(OpenAI, Support{Sent: `{"max_completion_tokens":321}`}).with(Responses, Support{Sent: `{"max_output_tokens":321}`}),
		{Name: "`temperature`", member: "temperature", probe: func(r *model.Request) { r.Temperature = pointer(0.25) }, Support: number("temperature", "0.25", OpenAI, Compatible, Responses, Anthropic)},
		{Name: "`top_p`", member: "top_p", probe: func(r *model.Request) { r.TopP = pointer(0.5) }, Support: number("top_p", "0.5", OpenAI, Compatible, Responses, Anthropic)},
		{Name: "`top_k`", member: "top_k", probe: func(r *model.Request) { r.TopK = pointer(int64(7)) }, Support: number("top_k", "7", Compatible, Anthropic)},
		Feature{Name: "`stop`", member: "stop", probe: func(r *model.Request) { r.Stop = []string{"END"} },
			Support: all(Support{Sent: `{"stop":["END"]}`}, OpenAI, Compatible)}.with(Anthropic, Support{Sent: `{"stop_sequences":["END"]}`}),
		{Name: "`seed`", member: "seed", probe: func(r *model.Request) { r.Seed = pointer(int64(7)) }, Support: number("seed", "7", OpenAI, Compatible)},
		{Name: "`presence_penalty`", member: "presence_penalty", probe: func(r *model.Request) { r.PresencePenalty = pointer(0.5) }, Support: number("presence_penalty", "0.5", OpenAI, Compatible)},
		{Name: "`frequency_penalty`", member: "frequency_penalty", probe: func(r *model.Request) { r.FrequencyPenalty = pointer(0.5) }, Support: number("frequency_penalty", "0.5", OpenAI, Compatible)},
		Feature{Name: "`verbosity`", member: "verbosity", probe: func(r *model.Request) { r.Verbosity = "low" },
			Support: number("verbosity", `"low"`, OpenAI, Compatible)}.with(Responses, Support{Sent: `{"text":{"verbosity":"low"}}`}),
		{Name: "`metadata`", member: "metadata", probe: func(r *model.Request) { r.Metadata = map[string]string{"k": "v"} }, Support: number("metadata", `{"k":"v"}`, Compatible, Responses)},
		Feature{Name: "`user`", member: "user", probe: func(r *model.Request) { r.User = "u1" },
			Support: number("user", `"u1"`, OpenAI, Compatible, Responses)}.with(Anthropic, Support{Sent: `{"metadata":{"user_id":"u1"}}`}),
	}
}

// answerFeatures are those of answers, and of what goes back of them.
func answerFeatures() []Feature {
	return []Feature{
		{Name: "Reasoning, back to the same provider", proof: Adapter.keepsReasoning, // P08
			Support: chat(`{"role":"assistant","reasoning_content":"Hm."}`, `{"type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":null}`, `{"type":"thinking","thinking":"Hm.","signature":null}`)},
		Feature{Name: "Refusals", proof: Adapter.readsRefusals,
			Support: all(Support{Read: item.Refusal}, OpenAI, Compatible, Responses)}.
			with(Anthropic, Support{Read: item.Text, Note: "text that ends with `content_filter`"}),
	}
}

// keepsReasoning checks that the reasoning of a turn is sent back with it.
func (a Adapter) keepsReasoning(t *testing.T, s Support) {
	u, m := a.start(t, "reasoning Hm.\ncall c1 f {}\n\ntext Done.", upstreamtest.Options{}, 0)
	req := a.request()
	withTools(req)
	turn, _ := ask(t, m, req)
	req.Items = append(append(req.Items, turn.Items...), item.NewResult("c1", "x", false))
	ask(t, m, req)
	if body := u.Requests()[1].Body; !sends(t, body, s.Sent) {
		t.Errorf("%s\nis not in %s", s.Sent, body)
	}
}

// readsRefusals checks whether a refusal is read as one, or as a text.
func (a Adapter) readsRefusals(t *testing.T, s Support) {
	_, m := a.start(t, "refusal No.", upstreamtest.Options{}, 0)
	turn, h := ask(t, m, a.request())
	read := item.PartKind("")
	switch {
	case refusals(turn) == "No." && turn.Text() == "" && h.kinds[model.RefusalDelta] == "No.":
		read = item.Refusal
	case turn.Text() == "No." && turn.Stop == model.StopFilter && h.kinds[model.TextDelta] == "No.":
		read = item.Text
	}
	if read != s.Read {
		t.Errorf("it is read as %q, and the table says %q: %+v, deltas %v", read, s.Read, turn, h.kinds)
	}
}

// features proves the rows of the table.
func (a Adapter) features(t *testing.T) { // M01 M02 M05 P22
	for _, f := range Features() {
		t.Run(f.Name, func(t *testing.T) {
			if f.proof != nil {
				f.proof(a, t, f.Support[a.Column])
				return
			}
			a.prove(t, f)
		})
	}
}

// prove compares a request with the feature with the same request without it.
func (a Adapter) prove(t *testing.T, f Feature) {
	u, m := a.start(t, "text a\nagain", upstreamtest.Options{}, 0)
	plain, probed := a.request(), a.request()
	for _, req := range []*model.Request{plain, probed} {
		if f.setup != nil {
			f.setup(req)
		}
	}
	f.probe(probed)
	ask(t, m, plain)
	s := f.Support[a.Column]
	_, err := m.Stream(t.Context(), probed, newHeard().emit)
	if s.Refused != "" {
		if err == nil || !strings.Contains(err.Error(), s.Refused) || len(u.Requests()) != 1 {
			t.Errorf("the table says that it is refused with %q; the error is %v, after %d requests", s.Refused, err, len(u.Requests()))
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	without, with := u.Requests()[0].Body, u.Requests()[1].Body
	dropped := f.member != "" && slices.Contains(m.(model.Translator).Dropped(probed), f.member)
	switch changed := string(without) != string(with); {
	case s.Omitted:
		if dropped || !strings.Contains(string(without), s.Without) {
			t.Errorf("the table says that %s is left out, but the request changes from\n%s\nto\n%s", s.Without, without, with)
		}
	case s.Sent == "" && changed:
		t.Errorf("the table says that it is dropped, but the request changes from\n%s\nto\n%s", without, with)
	case s.Sent == "" && f.member != "" && !dropped:
		t.Errorf("it is dropped, and %s is not reported", f.member)
	case s.Sent == "":
	case !changed || !sends(t, with, s.Sent) || sends(t, without, s.Sent):
		t.Errorf("the table says that %s is sent, but the request changes from\n%s\nto\n%s", s.Sent, without, with)
	case dropped:
		t.Errorf("it is sent, and %s is reported as dropped", f.member)
	}
	if s.Without != "" && (strings.Contains(string(with), s.Without) || s.Sent == "" && !s.Omitted) {
		t.Errorf("%s is in %s", s.Without, with)
	}
}

// sends reports whether the JSON of want is anywhere in a body: its members, and
// of arrays its elements in their order, beside others.
func sends(t *testing.T, body []byte, want string) bool {
	t.Helper()
	var b, w any
	if err := json.Unmarshal(body, &b); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("%s: %v", want, err)
	}
	return anywhere(b, w)
}

func anywhere(v, want any) bool {
	if covers(v, want) {
		return true
	}
	switch v := v.(type) {
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return anywhere(e, want) })
	case map[string]any:
		for _, e := range v {
			if anywhere(e, want) {
				return true
			}
		}
	}
	return false
}

func covers(v, want any) bool {
	switch want := want.(type) {
	case nil:
		return v != nil
	case map[string]any:
		o, ok := v.(map[string]any)
		for name, w := range want {
			ok = ok && covers(o[name], w)
		}
		return ok
	case []any:
		list, ok := v.([]any)
		for _, w := range want {
			i := slices.IndexFunc(list, func(e any) bool { return covers(e, w) })
			if i < 0 {
				return false
			}
			list = list[i+1:]
		}
		return ok
	}
	return v == want
}

// FeatureTable returns the table in Markdown.
func FeatureTable() string {
	var b strings.Builder
	b.WriteString("| |")
	for _, c := range Columns() {
		fmt.Fprintf(&b, " %s |", c)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(Columns())) + "\n")
	for _, f := range Features() {
		fmt.Fprintf(&b, "| %s |", f.Name)
		for _, c := range Columns() {
			fmt.Fprintf(&b, " %s |", f.Support[c].cell())
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func (s Support) cell() string {
	switch {
	case s.Refused != "" && s.Note == "":
		return "refused"
	case s.Note != "":
		return s.Note
	case s.Sent == "" && s.Read == "":
		return "no"
	}
	return "yes"
}
