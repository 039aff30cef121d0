package conformance

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/surface/spectest"
	"github.com/turnpike-gateway/turnpike/internal/upstreamtest"
)

// responsesRig is a gateway for the client of the Responses API. The org has two servers
// with one tool each: echo of everything, and get-sum of numbers.
type responsesRig struct {
	client  client
	fakes   *fakes
	echo    *proxy // before everything
	numbers *proxy
	base    string // of the API
	listed  [2]int // how often the tools of each server had been listed when the gateway started
}

// use is a use of the API, in clients/responses.mjs.
type use struct {
	helper  string
	stream  bool
	request object
	turns   []string
	other   string // key of another org
	times   int
	story   string
}

// run has the client use the API, with a provider of a dialect that refuses what a real
// one would.
func (r *responsesRig) run(t *testing.T, d dialect, u use) (outcome, *upstreamtest.Upstream) {
	t.Helper()
	const prompt = "The question of this test?" // by it, the fake of the provider is found
	if u.request["input"] == nil {
		u.request["input"] = prompt
	}
	u.request["model"] = d.model
	up := r.fakes.play(t, []conversation{{Prompt: prompt, story: u.story}})[0]
	got := answer(t, r.client, ask{Helper: u.helper, BaseURL: r.base, Key: devKey, Other: u.other, Request: u.request, Stream: u.stream, Turns: u.turns, Times: u.times})
	wantAccepted(t, up)
	return got, up
}

// eachResponse runs test for a provider of each dialect, for JSON and for streams.
func eachResponse(t *testing.T, test func(t *testing.T, d dialect, stream bool)) {
	for _, d := range dialects {
		t.Run(d.api, func(t *testing.T) { test(t, d, false) })
		t.Run(d.api+", streamed", func(t *testing.T) { test(t, d, true) })
	}
}

// testResponses uses what the official client has for the Responses API.
func testResponses(t *testing.T, s *site) { // P12 G15
	r := &responsesRig{client: nodeClient{node: s.node, script: "responses.mjs"}, fakes: startFakes(t), echo: startProxy(t, s.everything), numbers: startProxy(t, s.everything)}
	everything := object{"name": "everything", "url": r.echo.URL + "/mcp", "enabled": true, "tools": []string{"echo"}}
	numbers := object{"name": "numbers", "url": r.numbers.URL + "/mcp", "enabled": true, "tools": []string{"get-sum"}}
	specs := spectest.Find(t)
	r.base = startValidator(t, specs, s.startGateway(t, r.fakes.URL, []object{everything, numbers}).url).URL + "/v1"
	t.Run("stored responses", r.testStored)
	t.Run("streams again", r.testReplayed)
	t.Run("in the background", r.testBackground)
	t.Run("structured output", r.testParsed)
	t.Run("pages of an input", r.testPages)
	t.Run("conversations", r.testConversation)
	t.Run("failures", r.testFailed)
	t.Run("many at once", func(t *testing.T) { r.testTogether(t, s, specs) })
	r.testDeclared(t, "a server of the org", object{"type": "mcp", "server_label": "numbers", "require_approval": "never"})
	t.Run("progress", r.testProgress)
	t.Run("approvals", r.testApproved) // which lists the tools again

	other := *r
	other.listed = r.lists()
	other.base = startValidator(t, specs, s.startGateway(t, r.fakes.URL, []object{everything}).url).URL + "/v1"
	other.testDeclared(t, "a server of the request", object{
		"type": "mcp", "server_label": "numbers", "server_url": r.numbers.URL + "/mcp", "allowed_tools": []string{"get-sum"}, "require_approval": "never",
	})
}

// testDeclared declares the server numbers.
func (r *responsesRig) testDeclared(t *testing.T, name string, declared object) {
	t.Run(name+", a hidden one and a function", func(t *testing.T) { r.testServers(t, declared) })
	t.Run(name+", in a chain", func(t *testing.T) { r.testChains(t, declared) })
}

// lists returns how often the tools of each server were listed.
func (r *responsesRig) lists() [2]int { return [2]int{r.echo.listed(), r.numbers.listed()} }

func (r *responsesRig) testStored(t *testing.T) {
	eachResponse(t, func(t *testing.T, d dialect, stream bool) {
		got, up := r.run(t, d, use{helper: "stored", stream: stream, request: object{"instructions": "Be brief."}, story: "text Good \ntext morning ☀.\nagain"})
		wantEqual(t, "items", [][]string{{"message Good morning ☀."}, {"message Good morning ☀."}}, got.Items)
		wantEqual(t, "requests at the provider", 2, len(up.Requests()))
	})
}

// testReplayed streams a response again with the methods of the client.
func (r *responsesRig) testReplayed(t *testing.T) { // P05
	for _, d := range dialects {
		t.Run(d.api, func(t *testing.T) {
			got, up := r.run(t, d, use{helper: "replayed", request: object{}, story: "text Good \ntext morning ☀."})
			wantEqual(t, "items", [][]string{{"message Good morning ☀."}}, got.Items)
			wantEqual(t, "requests at the provider", 1, len(up.Requests()))
		})
	}
}

// testBackground makes, polls, continues and cancels responses in the background with the methods of the client.
func (r *responsesRig) testBackground(t *testing.T) { // P20 J22
	for _, d := range dialects {
		t.Run(d.api, func(t *testing.T) {
			got, _ := r.run(t, d, use{helper: "background", request: object{}, story: "text Good \ntext morning ☀.\nagain"})
			wantEqual(t, "items", [][]string{{"message Good morning ☀."}, {"message Good morning ☀."}}, got.Items)
		})
	}
}

func (r *responsesRig) testParsed(t *testing.T) {
	eachResponse(t, func(t *testing.T, d dialect, stream bool) {
		got, _ := r.run(t, d, use{helper: "parsed", stream: stream, request: object{}, story: "text \"{\\\"sum\\\":42,\"\ntext \"\\\"words\\\":\\\"zweiundvierzig ✓\\\"}\""})
		wantEqual(t, "answer", &parsedAnswer{42, "zweiundvierzig ✓"}, got.Parsed)
	})
}

func (r *responsesRig) testPages(t *testing.T) {
	var input []object
	for i, role := range []string{"user", "assistant", "user", "assistant", "user"} {
		input = append(input, object{"role": role, "content": fmt.Sprint("message ", i)})
	}
	input[0]["content"] = "The question of this test?"
	eachResponse(t, func(t *testing.T, d dialect, stream bool) {
		r.run(t, d, use{helper: "pages", stream: stream, request: object{"input": input}, story: "text Five."})
	})
}

// testConversation has a conversation with items of the client's and two responses, each
// with a call of a hidden server, and then a request with references to its items.
func (r *responsesRig) testConversation(t *testing.T) { // J09 J10
	const story = `
call toolu_1 echo {"message":"20 22"}

text First.

call toolu_2 echo {"message":"and more"}

text Second.

text Third.`
	eachResponse(t, func(t *testing.T, d dialect, stream bool) {
		got, up := r.run(t, d, use{helper: "conversation", stream: stream, request: object{}, other: freshKey, story: story,
			turns: []string{"The question of this test?", "And the second?", "And the third?"}})
		wantEqual(t, "items", [][]string{{"message First."}, {"message Second."}, {"message Third."}}, got.Items)
		(&rig{proxy: r.echo}).wantToolCalls(t, "echo", `{"message":"20 22"}`, "echo", `{"message":"and more"}`)
		all := up.Requests()
		if len(all) != 5 {
			t.Fatalf("%d requests at the provider, want 5", len(all))
		}
		for at, want := range map[int][]int{
			3: {1, 1, 1, 1, 1, 1, 1, 0, 0}, // the second response, after its call
			4: {0, 1, 1, 0, 0, 0, 0, 0, 1}, // references to the first question and its answer
		} {
			var counts []int
			for _, text := range []string{"Call me Ada.", "The question of this test?", "First.", "Echo: 20 22", "A note.", "And the second?", "Echo: and more", "Second.", "And the third?"} {
				counts = append(counts, bytes.Count(all[at].Body, []byte(text)))
			}
			wantEqual(t, fmt.Sprintf("texts in request %d at the provider", at), want, counts)
		}
	})
}

// testFailed has a provider that fails in the middle of its answer: a stream ends with
// response.failed, and the other form has an error status.
func (r *responsesRig) testFailed(t *testing.T) {
	eachResponse(t, func(t *testing.T, d dialect, stream bool) {
		r.run(t, d, use{helper: "failed", stream: stream, request: object{}, story: "text Half of\nfail 400 the prompt is odd\nagain"})
	})
}

// testProgress asks for the extension progress with all servers declared, and with hidden ones.
func (r *responsesRig) testProgress(t *testing.T) { // G15
	var tools []object
	for _, label := range []string{"everything", "numbers"} {
		tools = append(tools, object{"type": "mcp", "server_label": label, "require_approval": "never"})
	}
	got, up := r.run(t, dialects[0], use{helper: "progress", stream: true, request: object{"tools": tools}, story: "call toolu_1 get-sum {\"a\":20,\"b\":22}\n\ntext It is 42."})
	wantEqual(t, "items", [][]string{{
		"mcp_list_tools everything echo", "mcp_list_tools numbers get-sum",
		`mcp_call numbers get-sum {"a":20,"b":22} completed The sum of 20 and 22 is 42.`, "message It is 42.",
	}}, got.Items)
	(&rig{proxy: r.numbers}).wantToolCalls(t, "get-sum", `{"a":20,"b":22}`)
	wantEqual(t, "requests at the provider", 2, len(up.Requests()))
}

// testApproved has calls that wait for approval: approved, denied, and approved by a client
// that stores nothing at the gateway and changes the request that it sends back.
func (r *responsesRig) testApproved(t *testing.T) { // H01 H02 P02
	const story = `
call toolu_1 get-sum {"a":20,"b":22}

text It is 42.

call toolu_2 get-sum {"a":1,"b":1}

text Then not.

call toolu_3 get-sum {"a":2,"b":3}

text It is 5.`
	declared := object{"type": "mcp", "server_label": "numbers"}
	want := [][]string{
		{"mcp_list_tools numbers get-sum", `mcp_approval_request numbers get-sum {"a":20,"b":22}`},
		{`mcp_call numbers get-sum {"a":20,"b":22} completed The sum of 20 and 22 is 42.`, "message It is 42."},
		{"mcp_list_tools numbers get-sum", `mcp_approval_request numbers get-sum {"a":1,"b":1}`},
		{"message Then not."},
		{"mcp_list_tools numbers get-sum", `mcp_approval_request numbers get-sum {"a":2,"b":3}`},
		{`mcp_call numbers get-sum {"a":2,"b":3} completed The sum of 2 and 3 is 5.`, "message It is 5."},
	}
	eachResponse(t, func(t *testing.T, d dialect, stream bool) {
		got, up := r.run(t, d, use{helper: "approvals", stream: stream, request: object{"tools": []object{declared}}, other: freshKey, story: story})
		wantEqual(t, "items", want, got.Items)
		(&rig{proxy: r.numbers}).wantToolCalls(t, "get-sum", `{"a":20,"b":22}`, "get-sum", `{"a":2,"b":3}`)
		if all := up.Requests(); len(all) != 6 || !bytes.Contains(all[3].Body, []byte("not today")) {
			t.Errorf("%d requests at the provider", len(all))
		}
	})
}

// testServers has calls of a hidden server, of the declared one and of the client's
// function for one response, and sends the function's output.
func (r *responsesRig) testServers(t *testing.T, declared object) { // A08 G15
	const story = `
reasoning First the numbers.
text I look.
call toolu_1 echo {"message":"20 22"}
call toolu_2 get-sum {"a":20,"b":22}

call toolu_3 get-sum {"a":42,"b":1}
call toolu_4 get_local_time {"place":"Kyoto"}

text It is 43.`
	want := [][]string{
		{
			"mcp_list_tools numbers get-sum",
			"reasoning First the numbers.",
			"message I look.",
			`mcp_call numbers get-sum {"a":20,"b":22} completed The sum of 20 and 22 is 42.`,
			`mcp_call numbers get-sum {"a":42,"b":1} completed The sum of 42 and 1 is 43.`,
			`function_call get_local_time {"place":"Kyoto"}`,
		},
		{"message It is 43."},
	}
	eachResponse(t, func(t *testing.T, d dialect, stream bool) {
		tools := []object{declared, {
			"type": "function", "name": localTimeTool, "description": "The wall clock at a place.", "strict": false,
			"parameters": object{"type": "object", "properties": object{"place": object{"type": "string"}}, "required": []string{"place"}},
		}}
		request := object{"tools": tools, "reasoning": object{"effort": "low", "summary": "auto"}, "max_output_tokens": 6000}
		got, up := r.run(t, d, use{helper: "servers", stream: stream, request: request, story: story})
		wantEqual(t, "items", want, got.Items)
		(&rig{proxy: r.echo}).wantToolCalls(t, "echo", `{"message":"20 22"}`)
		(&rig{proxy: r.numbers}).wantToolCalls(t, "get-sum", `{"a":20,"b":22}`, "get-sum", `{"a":42,"b":1}`)
		wantOnce(t, up, 3, "Echo: 20 22", "The sum of 20 and 22 is 42.", "The sum of 42 and 1 is 43.", "12:34 in Kyoto")
	})
}

// wantOnce checks that there were so many requests at the provider, and that the last one
// has each text once.
func wantOnce(t *testing.T, up *upstreamtest.Upstream, requests int, texts ...string) {
	t.Helper()
	all := up.Requests()
	if len(all) != requests {
		t.Fatalf("%d requests at the provider, want %d", len(all), requests)
	}
	for _, text := range texts {
		if n := bytes.Count(all[requests-1].Body, []byte(text)); n != 1 {
			t.Errorf("the last request at the provider has %q %d times:\n%s", text, n, all[requests-1].Body)
		}
	}
}

// testChains has conversations of three turns, each with a call of two shown servers: with
// the id of the response before, and with all items before. No call is made again, and the
// gateway lists the tools of a server once for all conversations.
func (r *responsesRig) testChains(t *testing.T, declared object) { // D20 D21 J09
	var story []string
	var want [][]string
	var echoes, sums, texts []string
	for i := range 3 {
		story = append(story, fmt.Sprintf("reasoning Again.\ncall toolu_%[1]d1 echo {\"message\":\"turn %[1]d\"}\ncall toolu_%[1]d2 get-sum {\"a\":%[1]d,\"b\":1}\n\ntext Answer %[1]d.\n", i))
		echoes = append(echoes, "echo", fmt.Sprintf(`{"message":"turn %d"}`, i))
		sums = append(sums, "get-sum", fmt.Sprintf(`{"a":%d,"b":1}`, i))
		texts = append(texts, fmt.Sprintf("Echo: turn %d", i), fmt.Sprintf("The sum of %d and 1 is %d.", i, i+1))
		want = append(want, []string{
			"reasoning Again.",
			fmt.Sprintf(`mcp_call everything echo {"message":"turn %[1]d"} completed Echo: turn %[1]d`, i),
			fmt.Sprintf(`mcp_call numbers get-sum {"a":%[1]d,"b":1} completed The sum of %[1]d and 1 is %[2]d.`, i, i+1),
			fmt.Sprintf("message Answer %d.", i),
		})
	}
	want[0] = append([]string{"mcp_list_tools everything echo", "mcp_list_tools numbers get-sum"}, want[0]...)
	for _, helper := range []string{"chain", "resend"} {
		t.Run(helper, func(t *testing.T) {
			eachResponse(t, func(t *testing.T, d dialect, stream bool) {
				tools := []object{{"type": "mcp", "server_label": "everything", "require_approval": "never"}, declared}
				request := object{"tools": tools, "reasoning": object{"effort": "low", "summary": "auto"}, "max_output_tokens": 6000}
				got, up := r.run(t, d, use{helper: helper, stream: stream, request: request, story: strings.Join(story, "\n"),
					turns: []string{"The question of this test?", "And the second?", "And the third?"}})
				wantEqual(t, "items", want, got.Items)
				(&rig{proxy: r.echo}).wantToolCalls(t, echoes...)
				(&rig{proxy: r.numbers}).wantToolCalls(t, sums...)
				wantOnce(t, up, 6, texts...)
			})
		})
	}
	wantEqual(t, "lists of tools at the servers", [2]int{r.listed[0] + 1, r.listed[1] + 1}, r.lists())
}

// testTogether has requests of one key that are all at the provider before one is answered.
func (r *responsesRig) testTogether(t *testing.T, s *site, specs *spectest.Documents) {
	const times = 16
	b := startBarrier(t, r.fakes, times)
	other := *r
	other.base = startValidator(t, specs, s.startGateway(t, b.URL, []object{}).url).URL + "/v1"
	eachResponse(t, func(t *testing.T, d dialect, stream bool) {
		got, _ := other.run(t, d, use{helper: "together", stream: stream, request: object{}, times: times, story: "text Here.\nagain"})
		wantEqual(t, "items", slices.Repeat([][]string{{"message Here."}}, times), got.Items)
	})
}

// barrier lets requests through in groups of n: each waits until n have come.
type barrier struct {
	*httptest.Server
	onward http.Handler
	n      int

	mu   sync.Mutex
	came int
	full chan struct{} // closed when n have come; came and full are guarded by mu
}

func startBarrier(t *testing.T, onward http.Handler, n int) *barrier {
	b := &barrier{onward: onward, n: n, full: make(chan struct{})}
	b.Server = httptest.NewServer(b)
	t.Cleanup(func() {
		b.CloseClientConnections()
		b.Close()
	})
	return b
}

func (b *barrier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	full := b.full
	if b.came++; b.came == b.n {
		b.came, b.full = 0, make(chan struct{})
		close(full)
	}
	b.mu.Unlock()
	select {
	case <-full:
		b.onward.ServeHTTP(w, r)
	case <-r.Context().Done(): // the gateway left
	}
}
