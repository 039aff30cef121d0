// Package turnpike runs agents inside a Go program: it calls the model, executes the tools that the
// model asks for, gives it the results, and repeats this until the model answers.
//
//	weather := tool.Func("weather", "Current weather of a city.",
//		func(ctx context.Context, in struct{ City string `json:"city"` }) (string, error) {
//			return lookUp(ctx, in.City)
//		}).ReadOnly()
//
//	agent := &turnpike.Agent{
//		Model:        openai.Model("gpt-5.4", openai.Options{APIKey: key}),
//		Instructions: "Answer in one sentence.",
//		Tools:        []tool.Tool{weather},
//		Limits:       turnpike.Limits{USD: turnpike.USD("0.50")},
//	}
//	result, err := agent.Run(ctx, turnpike.Text("Is it warm in Bern?"))
//
// # Packages
//
// The packages are below github.com/turnpike-gateway/turnpike: provider/openai, provider/anthropic,
// provider/gemini and provider/bedrock make models, tool makes tools of Go functions, resource makes tools
// of Go values and tables, mcp makes tools of MCP servers, sqlite stores runs and conversations,
// turnpiketest has models that a test scripts, and gateway is the whole gateway as an [net/http.Handler].
//
// # Tools
//
// A tool is a Go function ([github.com/turnpike-gateway/turnpike/tool.Func]), a tool of an MCP
// server ([github.com/turnpike-gateway/turnpike/mcp.Server]), or a verb of a resource. The methods of what
// Func returns say more of it: ReadOnly, Idempotent, Key (calls with one key are one effect), ApproveIf,
// Timeout, Price. A failed call is told to the model, which may try something else, unless ToolErrors is
// [Abort]. Each call commits on its own: if the second call of a turn fails, the effect of the first stays.
//
// # Streams
//
// [Agent.Stream] returns the events of a run while they happen:
//
//	for text, err := range agent.Stream(ctx, turnpike.Text("…")).Text() {
//		if err != nil {
//			return err
//		}
//		fmt.Print(text)
//	}
//
// Leaving the loop cancels the run and waits until nothing of it is left, and so does the end of
// the context.
//
// # Errors
//
// A run that does not end with an answer returns an error of a type of this package, such as
// [*LimitError] or [*ModelError]. It is a [Failure]: it has the [Result] as far as the run came,
// with its steps.
//
// # Approvals
//
// A call needs the approval of a person if its tool says so, or Agent.NeedsApproval does:
//
//	refund := tool.Func("refund", "Refund an order.", pay).ApproveIf(func(in order) bool { return in.Cents > 1000 })
//
// It stops the run with the error [*Waiting], after the other calls of its turn. Resume goes on when
// somebody has decided about all of them: in this process, or with a Store in another one, up to seven days
// later:
//
//	_, err := agent.Run(ctx, turnpike.Text("Refund order A7."))
//	var waiting *turnpike.Waiting
//	if errors.As(err, &waiting) {
//		for _, a := range waiting.Approvals {
//			fmt.Println(waiting.RunID, a.ID, a.Tool, string(a.Arguments)) // show them to the person
//		}
//	}
//	…
//	result, err := agent.Resume(ctx, runID, turnpike.Approve(approvalID)).Result()
//
// # Hooks
//
// [Hooks] are functions that see each tool call before it is executed, its result before the model does, and the answer
// before the caller does. They may deny and change them.
//
// # Stores
//
// Without a Store, runs live in the memory of the agent and end with the process. With one
// ([github.com/turnpike-gateway/turnpike/sqlite.Open]) each step of a run is on disk before the next
// begins: [Agent.Resume] continues a run after a crash. Calls that may have been carried out when
// the process died are not made again, unless the tool says that they may be.
//
// # Sessions
//
// [Agent.Session] is a conversation of several runs. Its turns are in front of the input of the next:
//
//	chat := agent.Session("window 7")
//	first, err := chat.Run(ctx, turnpike.Text("How warm is it in Bern?"))
//	second, err := chat.Run(ctx, turnpike.Text("And in Basel?"))
//
// They are kept by Agent.Conversation, by Agent.Store, or in memory. [Agent.Sessions] lists them; [Session.Turns] and
// [Session.Delete] show and delete one.
//
// # Tests
//
// [github.com/turnpike-gateway/turnpike/turnpiketest.Model] is a model that says what a test tells it:
//
//	agent.Model = turnpiketest.Model(t,
//		turnpiketest.Call("weather", map[string]string{"city": "Bern"}),
//		turnpiketest.Say("Yes."),
//	)
//
// # Limits of this package
//
// An agent does not call other agents. Use one agent as a tool of another by a function that runs it.
package turnpike
