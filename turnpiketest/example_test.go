package turnpiketest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func ExampleScript() {
	script, err := turnpiketest.ParseScript(`
text Looking it up.
call c1 search {"q":"go"}

text Go is a language.
`)
	if err != nil {
		fmt.Println(err)
		return
	}
	transcript := []item.Item{item.NewText(item.User, "What is Go?")}
	for script.Left() > 0 {
		turn, err := script.Stream(context.Background(), &model.Request{Items: transcript}, func(model.Delta) error { return nil })
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(turn.Text(), turn.Stop)
		transcript = append(transcript, turn.Items...)
		for _, c := range turn.Calls {
			transcript = append(transcript, item.NewResult(c.ID, "a language", false))
		}
	}
	fmt.Println(len(script.Requests()[1].Items), "items in the second request")
	// Output:
	// Looking it up. tool_calls
	// Go is a language. stop
	// 4 items in the second request
}

func ExampleSource() {
	source := turnpiketest.NewSource(turnpiketest.Tool{
		Name: "double", Schema: `{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`,
		Answer: func(_ context.Context, arguments json.RawMessage) (tool.Result, error) {
			var a struct{ N int }
			if err := json.Unmarshal(arguments, &a); err != nil {
				return tool.Error(err.Error()), nil
			}
			return tool.Text(fmt.Sprint(2 * a.N)), nil
		},
	})
	tools, err := source.List(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := tools[0].Call(context.Background(), tool.Call{Key: "0.0", Arguments: json.RawMessage(`{"n":21}`)})
	fmt.Println(result.Parts[0].Text, err)
	fmt.Println(source.Calls()[0].Tool, string(source.Calls()[0].Arguments))
	// Output:
	// 42 <nil>
	// double {"n":21}
}

func ExampleMCPServer() {
	server := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{Bare: true}, turnpiketest.Tool{Name: "now", Result: "noon"})
	defer server.Close()

	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"now","arguments":{}}}`
	resp, err := http.Post(server.URL, "application/json", strings.NewReader(call))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	fmt.Println(string(body))
	fmt.Println(server.Count("tools/call"), server.Calls()[0].Tool)
	// Output:
	// {"id":1,"jsonrpc":"2.0","result":{"content":[{"type":"text","text":"noon"}]}}
	// 1 now
}
