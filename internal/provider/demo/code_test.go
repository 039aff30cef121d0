package demo_test

import (
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/demo"
)

// The demo of the built-in tools: a page is read, and its numbers are added up in each language that the question names.
func TestAQuestionWithAURLAndLanguagesUsesTheBuiltinTools(t *testing.T) {
	url := model(t)
	tools := []object{
		function("get_weather", citySchema),
		function("code_execute", `{"type":"object","properties":{"language":{"type":"string","enum":["python","javascript"]},"code":{"type":"string"}},"required":["language","code"]}`),
		function("web_scrape", `{"type":"object","properties":{"url":{"type":"string"}},"required":["url"]}`),
	}
	const page = "http://127.0.0.1:81" + demo.PricesPath
	messages := []object{user("Read " + page + ". Then add up the prices with JavaScript, and with Python.")}
	for i, step := range []struct{ tool, arguments, result string }{
		{"web_scrape", `{"url":"` + page + `"}`, "Title: Prices\nURL: " + page + "\n\n| lamp | 24.50 |\n| desk | 119 |"},
		{"code_execute", `{"language":"javascript","code":"const numbers = [24.5, 119];\nlet sum = 0;\nfor (const n of numbers) sum += n;\n` + "`the sum of ${numbers.length} numbers is ${sum}`" + `"}`, "143.5"},
		{"code_execute", `{"language":"python","code":"numbers = [24.5, 119]\nf'the sum of {len(numbers)} numbers is {sum(numbers)}'"}`, "143.5"},
		{"", "", ""},
	} {
		got, _ := ask(t, url, request(messages, tools, nil))
		if got.Tool != step.tool || got.Arguments != step.arguments {
			t.Fatalf("turn %d: %+v", i, got)
		}
		messages = turn(messages, "c", step.tool, step.arguments, step.result)
	}
	if got, _ := ask(t, url, request([]object{user("Add 3 and 4 with JavaScript.")}, tools[1:2], nil)); got.Tool != "code_execute" {
		t.Errorf("without a page: %+v", got)
	}
	if got, _ := ask(t, url, request([]object{user("Read " + page + " with JavaScript.")}, tools, object{"tool_choice": "none"})); got.Tool != "" {
		t.Errorf("tools are forbidden: %+v", got)
	}
}
