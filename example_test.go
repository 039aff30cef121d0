package turnpike_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/sqlite"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// scripted stands for a model such as openai.Model("gpt-5.4", openai.Options{APIKey: key}).
func scripted(turns ...turnpiketest.Step) model.Model {
	return turnpiketest.Model(new(testing.T), turns...)
}

// An agent with a tool, in twenty lines.
func Example() {
	weather := tool.Func("weather", "Current weather of a city.",
		func(_ context.Context, in struct {
			City string `json:"city"`
		}) (string, error) {
			return "21 °C in " + in.City, nil
		}).ReadOnly()

	agent := &turnpike.Agent{
		Model: scripted(
			turnpiketest.Call("weather", map[string]string{"city": "Bern"}),
			turnpiketest.Say("Yes, 21 °C."),
		),
		Instructions: "Answer in one sentence.",
		Tools:        []tool.Tool{weather},
	}
	result, err := agent.Run(context.Background(), turnpike.Text("Is it warm in Bern?"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Text, result.Rounds, "rounds")
	// Output: Yes, 21 °C. 2 rounds
}

// A typed tool: descriptions and required members come from the struct, and the model's mistakes go back
// to it before the function is called.
func Example_typedTool() {
	type query struct {
		City string `json:"city" jsonschema:"Name of the city, in English."`
		Unit string `json:"unit,omitempty"`
	}
	weather := tool.Func("weather", "Current weather of a city.", func(_ context.Context, in query) (map[string]int, error) {
		return map[string]int{"degrees": 21}, nil
	}).ReadOnly().Timeout(5 * time.Second).Schema(`{"properties":{"unit":{"enum":["C","F"]}}}`)

	agent := &turnpike.Agent{
		Model: scripted(
			turnpiketest.Call("weather", map[string]string{"city": "Bern", "unit": "K"}),
			turnpiketest.Call("weather", map[string]string{"city": "Bern", "unit": "C"}),
			turnpiketest.Say("21 °C."),
		),
		Tools: []tool.Tool{weather},
	}
	result, err := agent.Run(context.Background(), turnpike.Text("Is it warm in Bern?"), turnpike.ShowTrace())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, step := range result.Steps {
		for _, c := range step.Calls {
			fmt.Println(step.Round, c.Tool, c.Arguments, c.Error)
		}
	}
	fmt.Println(result.Steps[1].Calls[0].Result)
	// Output:
	// 1 weather {"city":"Bern","unit":"K"} true
	// 2 weather {"city":"Bern","unit":"C"} false
	// {"degrees":21}
}

// By default the model is told of a failed call. With Abort the run ends, and the error has the cause.
func Example_toolErrors() {
	errSoldOut := errors.New("sold out")
	order := tool.Func("order", "Order a product.", func(context.Context, struct{}) (string, error) { return "", errSoldOut })
	story := []turnpiketest.Step{turnpiketest.Call("order", nil), turnpiketest.Say("Sorry, it is sold out.")}

	agent := &turnpike.Agent{Model: scripted(story...), Tools: []tool.Tool{order}}
	result, _ := agent.Run(context.Background(), turnpike.Text("Order one."))
	fmt.Println(result.Text)

	strict := &turnpike.Agent{Model: scripted(story...), Tools: []tool.Tool{order}, ToolErrors: turnpike.Abort}
	_, err := strict.Run(context.Background(), turnpike.Text("Order one."))
	fmt.Println(err, errors.Is(err, errSoldOut))
	// Output:
	// Sorry, it is sold out.
	// tool order: sold out true
}

// Hooks decide about tool calls and their results: this one denies large refunds, and takes card numbers out of what
// the model reads.
func Example_hooks() {
	type order struct {
		ID    string `json:"id"`
		Cents int    `json:"cents"`
	}
	refund := tool.Func("refund", "Refund an order.", func(_ context.Context, in order) (string, error) {
		return "refunded " + in.ID + " to card 4242 4242 4242 4242", nil
	})
	agent := &turnpike.Agent{
		Model: scripted(
			turnpiketest.Turn(turnpiketest.Call("refund", order{"A7", 90_000}), turnpiketest.Call("refund", order{"A8", 900})),
			turnpiketest.Say("A8 is refunded."),
		),
		Tools: []tool.Tool{refund},
	}
	agent.Hooks = turnpike.Hooks{
		PreTool: func(_ context.Context, c turnpike.HookCall) (json.RawMessage, error) {
			var in order
			if err := json.Unmarshal(c.Arguments, &in); err != nil {
				return nil, err
			}
			if in.Cents > 1000 {
				return nil, &turnpike.DenyError{Message: "refunds over 10 dollars are for people"}
			}
			return nil, nil // the arguments of the model
		},
		PostTool: func(_ context.Context, _ turnpike.HookCall, result string) (string, error) {
			return cardNumber.ReplaceAllString(result, "****"), nil
		},
	}
	result, err := agent.Run(context.Background(), turnpike.Text("Refund A7 and A8."), turnpike.ShowTrace())
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, step := range result.Steps {
		for _, c := range step.Calls {
			fmt.Println(c.Tool, c.Arguments, "→", c.Result)
		}
	}
	fmt.Println(result.Text)
	// Output:
	// refund {"id":"A7","cents":90000} → Error: Blocked by hook — refunds over 10 dollars are for people
	// refund {"id":"A8","cents":900} → refunded A8 to card ****
	// A8 is refunded.
}

var cardNumber = regexp.MustCompile(`\d{4}( \d{4}){3}`)

// A hook before the answer: it replaces the text, or denies it. Nothing is told before it has decided.
func Example_answerHook() {
	agent := &turnpike.Agent{
		Model: scripted(turnpiketest.Say("Your card is 4242 4242 4242 4242."), turnpiketest.Say("The password is hunter2.")),
	}
	agent.Hooks.PreAnswer = func(_ context.Context, _ turnpike.HookRun, answer string) (string, error) {
		if strings.Contains(answer, "password") {
			return "", &turnpike.DenyError{Message: "answers contain no passwords"}
		}
		return cardNumber.ReplaceAllString(answer, "****"), nil
	}
	result, err := agent.Run(context.Background(), turnpike.Text("My card?"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Text)

	_, err = agent.Run(context.Background(), turnpike.Text("My password?"))
	var denied *turnpike.HookError
	fmt.Println(errors.As(err, &denied), err)
	// Output:
	// Your card is ****.
	// true the answer was denied: answers contain no passwords
}

// Limits of rounds, tokens, money and time. The error says which one, and has the trace.
func Example_budgets() {
	look := tool.Func("look", "Look again.", func(context.Context, struct{}) (string, error) { return "nothing yet", nil }).ReadOnly()
	agent := &turnpike.Agent{
		Model:  scripted(turnpiketest.Call("look", nil), turnpiketest.Call("look", nil)),
		Tools:  []tool.Tool{look},
		Rates:  map[string]turnpike.Rate{"model": {Input: turnpike.USD("1.25"), Output: turnpike.USD("10")}},
		Limits: turnpike.Limits{Rounds: 2, Tokens: 100_000, USD: turnpike.USD("0.50"), Time: time.Minute},
	}
	_, err := agent.Run(context.Background(), turnpike.Text("Watch it."))
	var limit *turnpike.LimitError
	if errors.As(err, &limit) {
		fmt.Println(limit.Kind, limit.Status(), len(limit.Result().Steps), "steps")
	}
	// Output: iterations 429 2 steps
}

// A run whose prompt is too long for the context window of its model: old results of tools are left out, and then the
// model writes a summary of the older part.
func Example_compaction() {
	look := tool.Func("look", "Look again.", func(context.Context, struct{}) (string, error) { return "nothing yet", nil }).ReadOnly()
	m := scripted(turnpiketest.Call("look", nil), turnpiketest.Say("Nothing."))
	agent := &turnpike.Agent{
		Model:      m,
		Tools:      []tool.Tool{look},
		Compaction: turnpike.Compaction{Mode: turnpike.Summarize, ExcludeTools: []string{"read_contract"}},
	}
	result, err := agent.Run(context.Background(), turnpike.Text("Watch it."), turnpike.Compact(turnpike.Compaction{Mode: turnpike.Prune, Window: 8192}))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Text)
	// Output: Nothing.
}

// The end of the context cancels the model call and the tools. What they have done stays.
func Example_abort() {
	ctx, cancel := context.WithCancel(context.Background())
	wait := tool.Func("wait", "Wait for a delivery.", func(ctx context.Context, _ struct{}) (string, error) {
		cancel() // somebody has pressed Stop
		<-ctx.Done()
		return "", ctx.Err()
	})
	agent := &turnpike.Agent{Model: scripted(turnpiketest.Call("wait", nil)), Tools: []tool.Tool{wait}}
	_, err := agent.Run(ctx, turnpike.Text("Wait for it."))
	var abort *turnpike.AbortError
	fmt.Println(errors.As(err, &abort), errors.Is(err, context.Canceled), abort.Result().Steps[0].Calls[0].Outcome)
	// Output: true true unknown
}

// A stream into an HTTP response. If the client leaves, the context of the request ends, and the run too.
func Example_streaming() {
	agent := &turnpike.Agent{Model: scripted(turnpiketest.Turn(turnpiketest.Say("It is "), turnpiketest.Say("warm.")))}
	handler := func(w http.ResponseWriter, r *http.Request) {
		flusher := http.NewResponseController(w)
		for text, err := range agent.Stream(r.Context(), turnpike.Text(r.FormValue("q"))).Text() {
			if err != nil {
				fmt.Fprintf(w, "\n[%v]", err)
				return
			}
			fmt.Fprint(w, text)
			_ = flusher.Flush()
		}
	}
	w := httptest.NewRecorder()
	handler(w, httptest.NewRequest(http.MethodGet, "/?q=Is+it+warm", nil))
	fmt.Println(w.Body, w.Flushed)
	// Output: It is warm. true
}

// Every event of a run, such as the tool calls that it begins.
func ExampleStream_Events() {
	agent := &turnpike.Agent{
		Model: scripted(turnpiketest.Call("now", nil), turnpiketest.Say("Noon.")),
		Tools: []tool.Tool{tool.Func("now", "The time of day.", func(context.Context, struct{}) (string, error) { return "12:00", nil }).ReadOnly()},
	}
	for e, err := range agent.Stream(context.Background(), turnpike.Text("What time is it?")).Events() {
		if err != nil {
			fmt.Println(err)
			return
		}
		switch e := e.(type) {
		case event.ToolStarted:
			fmt.Println("calling", e.Name)
		case event.ToolDone:
			fmt.Println("got", e.Text)
		case event.TextDelta:
			fmt.Println(e.Text)
		}
	}
	// Output:
	// calling now
	// got 12:00
	// Noon.
}

// A call that a person must approve: the run waits in a file, and another process goes on.
func Example_approval() {
	dir, _ := os.MkdirTemp("", "approval")
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "runs.db")

	type refund struct {
		Order string `json:"order"`
		Cents int    `json:"cents"`
	}
	newAgent := func(store turnpike.Store, m model.Model) *turnpike.Agent {
		return &turnpike.Agent{Model: m, Store: store, Tools: []tool.Tool{
			tool.Func("refund", "Refund an order.", func(ctx context.Context, in refund) (string, error) {
				return fmt.Sprintf("refunded %d with the key %s", in.Cents, tool.From(ctx).IdempotencyKey), nil
			}).Key(func(in refund) string { return in.Order }).ApproveIf(func(in refund) bool { return in.Cents > 1000 }),
		}}
	}

	// The first process.
	store, err := sqlite.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	agent := newAgent(store, scripted(turnpiketest.Call("refund", refund{"A7", 5000})))
	_, err = agent.Run(context.Background(), turnpike.Text("Refund order A7."))
	var waiting *turnpike.Waiting
	if !errors.As(err, &waiting) {
		fmt.Println(err)
		return
	}
	fmt.Println(waiting.Approvals[0].Tool, string(waiting.Approvals[0].Arguments))
	_ = store.Close()

	// Another process, a day later.
	if store, err = sqlite.Open(path); err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()
	agent = newAgent(store, scripted(turnpiketest.Say("Done.")))
	for run, err := range agent.Runs(context.Background(), turnpike.RunFilter{States: []turnpike.RunState{turnpike.RunBroken}}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		if _, err := agent.Resume(context.Background(), run.ID).Result(); err != nil {
			fmt.Println(run.ID, err)
		}
	}
	result, err := agent.Resume(context.Background(), waiting.RunID, turnpike.Approve(waiting.Approvals[0].ID)).Result()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Steps[0].Calls[0].Result)
	fmt.Println(result.Text)
	// Output:
	// refund {"order":"A7","cents":5000}
	// refunded 5000 with the key refund:A7
	// Done.
}

// Structured output: the answer is a Go value.
func ExampleInto() {
	type forecast struct {
		City string `json:"city"`
		High int    `json:"high" jsonschema:"in °C"`
	}
	agent := &turnpike.Agent{Model: scripted(turnpiketest.Say(`{"city":"Bern","high":24}`))}
	f, _, err := turnpike.Into[forecast](context.Background(), agent, turnpike.Text("The forecast for Bern?"))
	fmt.Println(f.City, f.High, err)
	// Output: Bern 24 <nil>
}

// One model call, whose tool calls the program executes.
func ExampleGenerate() {
	weather := tool.Raw("weather", "Current weather of a city.", []byte(`{"type":"object","properties":{"city":{"type":"string"}}}`),
		func(context.Context, json.RawMessage) (tool.Result, error) { return tool.Text("unused"), nil })
	result, err := turnpike.Generate(context.Background(), scripted(turnpiketest.Call("weather", map[string]string{"city": "Bern"})),
		turnpike.Text("Is it warm in Bern?"), turnpike.Tools(weather))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Reason, result.Calls[0].Name, result.Calls[0].Arguments)
	// Output: tool_calls weather {"city":"Bern"}
}

// The history of a conversation: the items of a run with those of its input.
func ExampleItems() {
	m := turnpiketest.Model(new(testing.T), turnpiketest.Say("21 °C."), turnpiketest.Say("18 °C."))
	agent := &turnpike.Agent{Model: m}
	question := turnpike.Text("How warm is it in Bern?")
	first, _ := agent.Run(context.Background(), question)
	second, _ := agent.Run(context.Background(), question.And(turnpike.Items(first.Items...)).And(turnpike.Text("And in Basel?")))
	fmt.Println(second.Text, len(m.Requests()[1].Items), "items")
	// Output: 18 °C. 3 items
}

// A conversation that goes on: the earlier turns are in front of the next question. They are in a file,
// so that another process can go on, a day later.
func ExampleAgent_Session() {
	dir, _ := os.MkdirTemp("", "session")
	defer func() { _ = os.RemoveAll(dir) }()
	store, err := sqlite.Open(filepath.Join(dir, "chats.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = store.Close() }()

	m := turnpiketest.Model(new(testing.T), turnpiketest.Say("21 °C."), turnpiketest.Say("18 °C."))
	agent := &turnpike.Agent{Model: m, Conversation: sqlite.NewSessions(store, sqlite.SessionOptions{TTL: 90 * 24 * time.Hour})}
	chat := agent.Session("window 7")
	for _, question := range []string{"How warm is it in Bern?", "And in Basel?"} {
		result, err := chat.Run(context.Background(), turnpike.Text(question))
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(result.Text)
	}
	for _, it := range m.Requests()[1].Items {
		fmt.Println("the model has read:", it.Text())
	}
	// Output:
	// 21 °C.
	// 18 °C.
	// the model has read: How warm is it in Bern?
	// the model has read: 21 °C.
	// the model has read: And in Basel?
}

// Sessions are listed, shown and deleted, also after a restart.
func ExampleAgent_Sessions() {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path := filepath.Join(dir, "chats.db")
	for _, m := range []model.Model{scripted(turnpiketest.Say("21 °C.")), scripted()} {
		store, err := sqlite.Open(path)
		if err != nil {
			fmt.Println(err)
			return
		}
		agent := &turnpike.Agent{Model: m, Store: store}
		found := ""
		for session, err := range agent.Sessions(context.Background(), turnpike.Program()) {
			if err != nil {
				fmt.Println(err)
				return
			}
			found = session.ID
		}
		if found == "" {
			_, err = agent.Session("window 7").Run(context.Background(), turnpike.Text("How warm is it in Bern?"))
		} else {
			turns, err := agent.Session(found).Turns(context.Background())
			if err != nil {
				fmt.Println(err)
				return
			}
			for _, turn := range turns {
				fmt.Println(found, turn.Role, turn.Items[0].Text())
			}
			err = agent.Session(found).Delete(context.Background())
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Println("deleted")
		}
		if err := errors.Join(err, store.Close()); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// window 7 user How warm is it in Bern?
	// window 7 assistant 21 °C.
	// deleted
}

// A question is asked again in another way, and a fork of the session is asked a third one.
func ExampleSession_Rewind() {
	answers := scripted(turnpiketest.Say("21 °C."), turnpiketest.Say("No."), turnpiketest.Say("Yes."), turnpiketest.Say("18 °C."))
	chat := (&turnpike.Agent{Model: answers}).Session("window 7")
	var run string
	for _, question := range []string{"How warm is it in Bern?", "Is that hot?"} {
		result, err := chat.Run(context.Background(), turnpike.Text(question))
		if err != nil {
			fmt.Println(err)
			return
		}
		run = result.RunID
	}
	err := chat.Rewind(context.Background(), run)
	if err != nil {
		fmt.Println(err)
		return
	}
	fork, err := chat.Fork(context.Background(), "window 8")
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, s := range []*turnpike.Session{chat, fork} {
		_, err := s.Run(context.Background(), turnpike.Text([]string{"Is that warm?", "And in Basel?"}[i]))
		if err != nil {
			fmt.Println(err)
			return
		}
		turns, err := s.Turns(context.Background())
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(s.ID(), "-", turns[0].Items[0].Text(), turns[2].Items[0].Text())
	}
	// Output:
	// window 7 - How warm is it in Bern? Is that warm?
	// window 8 - How warm is it in Bern? And in Basel?
}

// transcript is a Conversation of the program's own.
type transcript struct{}

func (transcript) Append(_ context.Context, turn turnpike.Turn) error {
	fmt.Println(turn.Number, turn.Role, len(turn.Items))
	return nil // an error would end the run
}

// A Conversation gets every turn of every run, in order.
func Example_conversation() {
	now := tool.Func("now", "The time of day.", func(context.Context, struct{}) (string, error) { return "12:00", nil })
	agent := &turnpike.Agent{
		Model: scripted(turnpiketest.Call("now", nil), turnpiketest.Say("Noon.")), Tools: []tool.Tool{now}, Conversation: transcript{},
	}
	if _, err := agent.Run(context.Background(), turnpike.Text("What time is it?")); err != nil {
		fmt.Println(err)
	}
	// Output:
	// 0 user 1
	// 1 assistant 1
	// 2 tool 1
	// 3 assistant 1
}

// Testing an agent: a model that says what the test tells it, and what it was asked. The model can also
// fail (turnpiketest.Fail), break off (turnpiketest.Cut) and count tokens (turnpiketest.Uses).
func Example_testing() {
	m := turnpiketest.Model(new(testing.T),
		turnpiketest.Turn(turnpiketest.Say("Let me see."), turnpiketest.Call("now", nil), turnpiketest.Uses(100, 20)),
		turnpiketest.Say("Noon."),
	)
	agent := &turnpike.Agent{
		Model: m, Instructions: "Be polite.",
		Tools: []tool.Tool{tool.Func("now", "The time of day.", func(context.Context, struct{}) (string, error) { return "12:00", nil })},
	}
	result, err := agent.Run(context.Background(), turnpike.Text("What time is it?"))
	if err != nil {
		fmt.Println(err)
		return
	}
	asked := m.Requests()
	fmt.Println(result.Text, result.Usage.Input, "tokens")
	fmt.Println(len(asked), "calls,", asked[0].Items[0].Text(), asked[0].Tools[0].Name)
	// Output:
	// Noon. 100 tokens
	// 2 calls, Be polite. now
}
