// Package responses is the Responses API: POST /v1/responses.
//
// A tool of type mcp in a request declares an MCP server. decodeMCPTool adds it to the
// servers of the run, and mcpOutput makes output items of the events about it.
package responses
