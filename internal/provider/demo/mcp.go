package demo

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// Question is one that the model and the tools of [MCPServer] answer in two
// rounds.
const Question = "How warm is it in Lisbon, in Fahrenheit?"

// MCPServer returns an MCP server over streamable HTTP with two tools that only
// read: get_weather, from a small table of example data, and
// convert_temperature, which computes. It keeps no sessions.
func MCPServer() http.Handler {
	s := mcp.NewServer(&mcp.Implementation{Name: "turnpike-demo", Title: "Turnpike's demo tools", Version: "1.0.0"}, nil)
	mcp.AddTool(s, weatherTool(), getWeather)
	mcp.AddTool(s, temperatureTool(), convertTemperature)
	return mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{Stateless: true})
}

func weatherTool() *mcp.Tool {
	return &mcp.Tool{
		Name: "get_weather", Title: "Weather (example data)",
		Description: "Temperature and sky of a city. Example data from a small table, not a forecast.",
		Annotations: readOnly(),
		InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","description":"Name of the city","minLength":1,"maxLength":64}},"required":["city"],"additionalProperties":false}`),
	}
}

func temperatureTool() *mcp.Tool {
	const unit = `{"type":"string","enum":["celsius","fahrenheit","kelvin"]}`
	return &mcp.Tool{
		Name: "convert_temperature", Title: "Convert a temperature",
		Description: "Converts a temperature between Celsius, Fahrenheit and Kelvin.",
		Annotations: readOnly(),
		InputSchema: json.RawMessage(`{"type":"object","properties":{"value":{"type":"number"},"from":` + unit + `,"to":` + unit + `},"required":["value","from","to"],"additionalProperties":false}`),
	}
}

func readOnly() *mcp.ToolAnnotations {
	return &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true, DestructiveHint: new(false), OpenWorldHint: new(false)}
}

type weatherArgs struct {
	City string `json:"city"`
}

func getWeather(_ context.Context, _ *mcp.CallToolRequest, args weatherArgs) (*mcp.CallToolResult, any, error) {
	text, err := weather(args.City)
	return textResult(text), nil, err
}

type temperatureArgs struct {
	Value float64 `json:"value"`
	From  string  `json:"from"`
	To    string  `json:"to"`
}

func convertTemperature(_ context.Context, _ *mcp.CallToolRequest, args temperatureArgs) (*mcp.CallToolResult, any, error) {
	text, err := convert(args.Value, args.From, args.To)
	return textResult(text), nil, err
}

func textResult(text string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: text}}}
}
