package responses_test

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/caller"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/surface"
	"github.com/turnpike-gateway/turnpike/internal/surface/responses"
)

// testKeys returns a keyring with a new master key.
func testKeys(t *testing.T) *secret.Keyring {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key)
	keys, err := secret.NewKeyring(secret.NewValue(base64.StdEncoding.EncodeToString(key)))
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// compaction is the answer to a request that compacts.
type compaction struct {
	status int
	body   string
	object struct {
		ID, Object, Status string
		Output             []struct {
			ID, Type, Content string
			Encrypted         string `json:"encrypted_content"`
		}
		Usage map[string]any
		Error struct{ Code, Param, Message string }
	}
}

func (b *bench) compact(t *testing.T, caller caller.Caller, serve surface.Endpoint, body string) compaction {
	t.Helper()
	w := httptest.NewRecorder()
	if err := serve(w, httptest.NewRequest(http.MethodPost, "/x", strings.NewReader(body)), caller); err != nil {
		responses.Errors().Write(w, err)
	}
	c := compaction{status: w.Code, body: w.Body.String()}
	if err := json.Unmarshal(w.Body.Bytes(), &c.object); err != nil && !strings.HasPrefix(c.body, "event:") {
		t.Fatalf("%v: %s", err, c.body)
	}
	return c
}

// conversationInput is a conversation with a call of the client's own tool.
const conversationInput = `{"role":"user","content":"The code word is heron. Deploy it."},
	{"type":"function_call","call_id":"c1","name":"deploy","arguments":"{}"},
	{"type":"function_call_output","call_id":"c1","output":"deployed as v7"},
	{"role":"assistant","content":[{"type":"output_text","text":"Deployed."}]}`

// Both forms answer one item, whose summary and texts the model gets when the item comes back. // P50
func TestACompactedConversationGoesOn(t *testing.T) {
	for name, tt := range map[string]struct {
		endpoint func(*bench) surface.Endpoint
		body     string
		object   string
	}{
		"endpoint": {func(b *bench) surface.Endpoint { return b.Compact }, `{"model":"m","instructions":"Be brief.","input":[` + conversationInput + `]}`, "response.compaction"},
		"trigger":  {func(b *bench) surface.Endpoint { return b.Serve }, `{"model":"m","instructions":"Be brief.","store":false,"input":[` + conversationInput + `,{"type":"compaction_trigger"}]}`, "response"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "text v7 is deployed; say so if asked.\n\ntext heron")
			alice := b.caller("acme", "alice")
			made := b.compact(t, alice, tt.endpoint(b), tt.body)
			if made.status != 200 || made.object.Object != tt.object || !strings.HasPrefix(made.object.ID, "resp_") || made.object.Usage["input_tokens"] == nil {
				t.Fatalf("%+v", made)
			}
			if len(made.object.Output) != 1 || made.object.Output[0].Type != "compaction" || !strings.HasPrefix(made.object.Output[0].ID, "cmp_") {
				t.Fatalf("output %+v", made.object.Output)
			}
			if strings.Contains(made.body, "code word") || strings.Contains(made.body, "is deployed") {
				t.Errorf("the content can be read: %s", made.body)
			}
			if got := b.prompt(); !strings.HasPrefix(got, "message system Be brief.\nmessage user The code word is heron. Deploy it.\ntool_call c1 \n") ||
				!strings.Contains(got, "message user The conversation has become too long") {
				t.Errorf("the summary was asked for with\n%s", got)
			}
			item, err := json.Marshal(map[string]string{"type": "compaction", "id": made.object.Output[0].ID, "encrypted_content": made.object.Output[0].Encrypted})
			if err != nil {
				t.Fatal(err)
			}
			next := b.post(t, `{"model":"m","input":[`+string(item)+`,{"role":"user","content":"What is the code word?"}]}`)
			want := "message user The code word is heron. Deploy it.\n" +
				"message user Summary of the conversation until here, by the model that led it:\nv7 is deployed; say so if asked.\nmessage user What is the code word?"
			if got := b.prompt(); next.status != 200 || got != want {
				t.Errorf("%d %s\n%s\nwant\n%s", next.status, next.body, got, want)
			}
		})
	}
}

// A stream of a response that compacts has exactly one item, in the form of the API.
func TestACompactionIsStreamed(t *testing.T) { // P50
	b := newBench(t, "text All is done.")
	got := b.compact(t, b.caller("acme", "alice"), b.Serve, `{"model":"m","stream":true,"store":false,"input":[{"role":"user","content":"x"},{"type":"compaction_trigger"}]}`)
	var events []string
	for _, line := range strings.Split(got.body, "\n") {
		if name, is := strings.CutPrefix(line, "event: "); is {
			events = append(events, name)
		}
	}
	want := "[response.created response.in_progress response.output_item.added response.output_item.done response.completed]"
	if fmt.Sprint(events) != want || strings.Count(got.body, `"type":"compaction"`) != 3 || strings.Contains(got.body, "All is done") {
		t.Errorf("%v\n%s", events, got.body)
	}
}

// What cannot be compacted, or is not a compaction of this gateway, is refused and says why.
func TestWhatIsNoCompaction(t *testing.T) { // P50
	b := newBench(t, "text Sealed.\n\ntext Later.")
	alice := b.caller("acme", "alice")
	made := b.compact(t, alice, b.Compact, `{"model":"m","input":"x"}`)
	content := made.object.Output[0].Encrypted
	with := func(content string) string {
		return `{"model":"m","input":[{"type":"compaction","encrypted_content":"` + content + `"},{"role":"user","content":"y"}]}`
	}
	again := b.caller("acme", "alice")
	again.Org.CreatedAt = time.Unix(1, 0)
	for name, tt := range map[string]struct {
		caller caller.Caller
		serve  surface.Endpoint
		body   string
		status int
		code   string
		param  string
	}{
		"another org":         {b.caller("other", "alice"), b.Serve, with(content), 400, "invalid_value", "input[0].encrypted_content"},
		"the org, made again": {again, b.Serve, with(content), 400, "invalid_value", "input[0].encrypted_content"},
		"changed":             {alice, b.Serve, with(content[:len(content)-6] + "AAAAAA"), 400, "invalid_value", "input[0].encrypted_content"},
		"of a provider":       {alice, b.Serve, with("gAAAAABpM0Yj"), 400, "invalid_value", "input[0].encrypted_content"},
		"not the last":        {alice, b.Serve, `{"model":"m","store":false,"input":[{"type":"compaction_trigger"},{"role":"user","content":"x"}]}`, 400, "invalid_value", "input[1]"},
		"nothing before":      {alice, b.Serve, `{"model":"m","store":false,"input":[{"type":"compaction_trigger"}]}`, 400, "missing_required_parameter", "input"},
		"no model":            {alice, b.Compact, `{"input":"x"}`, 400, "missing_required_parameter", "model"},
		"no input":            {alice, b.Compact, `{"model":"m"}`, 400, "missing_required_parameter", "input"},
		"a stream":            {alice, b.Compact, `{"model":"m","input":"x","stream":true}`, 400, "unsupported_value", "stream"},
	} {
		t.Run(name, func(t *testing.T) {
			got := b.compact(t, tt.caller, tt.serve, tt.body)
			if got.status != tt.status || got.object.Error.Code != tt.code || got.object.Error.Param != tt.param {
				t.Errorf("%d %s", got.status, got.body)
			}
		})
	}
	if n := len(b.script.Requests()); n != 1 {
		t.Errorf("%d model calls, want that of the first compaction", n)
	}
}

// A summary that is empty or cut off is a failure: a client that went on with it would have lost its conversation.
func TestAFailedSummaryIsNoCompaction(t *testing.T) { // P50
	for name, story := range map[string]string{"empty": "text", "cut off": "text All\nstop length"} {
		t.Run(name, func(t *testing.T) {
			for form, body := range map[string]string{
				"object": `{"model":"m","store":false,"input":[{"role":"user","content":"x"},{"type":"compaction_trigger"}]}`,
				"stream": `{"model":"m","stream":true,"store":false,"input":[{"role":"user","content":"x"},{"type":"compaction_trigger"}]}`,
			} {
				b := newBench(t, story)
				got := b.compact(t, b.caller("acme", "alice"), b.Serve, body)
				if got.status != 502 || got.object.Error.Code != "compaction_failed" {
					t.Errorf("%s: %d %s", form, got.status, got.body)
				}
			}
		})
	}
}

// Without a master key nothing can be sealed, and the error names it.
func TestACompactionNeedsAMasterKey(t *testing.T) { // P50
	b := newBench(t, "text x")
	b.options.Seals = nil
	b.Handler = responses.New(b.options)
	got := b.compact(t, b.caller("acme", "alice"), b.Compact, `{"model":"m","input":"x"}`)
	if got.status != 501 || got.object.Error.Code != "compaction_unavailable" || !strings.Contains(got.object.Error.Message, "master_key") {
		t.Errorf("%d %s", got.status, got.body)
	}
	if n := len(b.script.Requests()); n != 0 {
		t.Errorf("%d model calls", n)
	}
}

// The oldest texts are left out of a compaction that would be too long.
func TestACompactionHasABound(t *testing.T) { // P50
	b := newBench(t, "text Short.")
	long := strings.Repeat("é", 20<<10)
	got := b.compact(t, b.caller("acme", "alice"), b.Compact, `{"model":"m","input":[{"role":"user","content":"old `+long+`"},{"role":"user","content":"new `+long+`"}]}`)
	if n := len(got.object.Output[0].Encrypted); got.status != 200 || n > 256<<10 || n < 40<<10 || n > 80<<10 {
		t.Errorf("%d, %d bytes", got.status, n)
	}
}

// A conversation can have compactions, of this gateway and of providers.
func TestAConversationHasCompactions(t *testing.T) { // P50
	b := newBench(t, "text Sealed.\n\ntext Yes.")
	alice := b.caller("acme", "alice")
	made := b.compact(t, alice, b.Compact, `{"model":"m","input":"The code word is heron."}`)
	item := fmt.Sprintf(`{"type":"compaction","encrypted_content":%q}`, made.object.Output[0].Encrypted)
	id := b.conversation(t, alice, "POST", "", "", "", `{"items":[`+item+`,{"type":"compaction","encrypted_content":"gAAAAABpM0Yj"}]}`)
	if id.status != 200 {
		t.Fatalf("%+v", id)
	}
	next := b.post(t, `{"model":"m","input":"Do you know the word?","conversation":"`+id.object.ID+`"}`)
	if got := b.prompt(); next.status != 200 || !strings.Contains(got, "message user The code word is heron.\nmessage user Summary of the conversation") {
		t.Errorf("%d %s\n%s", next.status, next.body, got)
	}
}

// What is stored can be compacted: a chain and a conversation, by both forms of request. What is stored does not
// change, and the item begins a new conversation. // P50
func TestWhatIsStoredIsCompacted(t *testing.T) {
	for name, tt := range map[string]struct {
		conversation bool
		trigger      bool
	}{"chain, endpoint": {false, false}, "chain, trigger": {false, true}, "conversation, endpoint": {true, false}, "conversation, trigger": {true, true}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, "text Noted.\n\ntext The code word is heron.\n\ntext heron\n\ntext still")
			alice := b.caller("acme", "alice")
			link := ""
			if tt.conversation {
				made := b.conversation(t, alice, "POST", "", "", "", `{}`)
				link = `,"conversation":"` + made.object.ID + `"`
			}
			first := b.post(t, `{"model":"m","input":"The code word is heron."`+link+`}`)
			if first.status != 200 {
				t.Fatalf("%d %s", first.status, first.body)
			}
			if !tt.conversation {
				link = `,"previous_response_id":"` + first.object.ID + `"`
			}
			var made compaction
			if tt.trigger {
				made = b.compact(t, alice, b.Serve, `{"model":"m"`+link+`,"input":[{"type":"compaction_trigger"}]}`)
			} else {
				made = b.compact(t, alice, b.Compact, `{"model":"m"`+link+`}`)
			}
			if made.status != 200 || len(made.object.Output) != 1 || made.object.Output[0].Type != "compaction" {
				t.Fatalf("%d %s", made.status, made.body)
			}
			if got := b.prompt(); !strings.HasPrefix(got, "message user The code word is heron.\nmessage assistant Noted.\nmessage user The conversation has become too long") {
				t.Errorf("the summary was asked for with\n%s", got)
			}
			item := fmt.Sprintf(`{"type":"compaction","encrypted_content":%q}`, made.object.Output[0].Encrypted)
			fresh := b.conversation(t, alice, "POST", "", "", "", `{"items":[`+item+`]}`)
			next := b.post(t, `{"model":"m","input":"Which word?","conversation":"`+fresh.object.ID+`"}`)
			want := "message user Summary of the conversation until here, by the model that led it:\nThe code word is heron.\nmessage user Which word?"
			if got := b.prompt(); next.status != 200 || got != want {
				t.Errorf("%d %s\n%s", next.status, next.body, got)
			}
			again := b.post(t, `{"model":"m","input":"Still there?"`+link+`}`)
			if got := b.prompt(); again.status != 200 || got != "message user The code word is heron.\nmessage assistant Noted.\nmessage user Still there?" {
				t.Errorf("%d %s\n%s", again.status, again.body, got)
			}
		})
	}
}
