// Package responses is the Responses API: POST /v1/responses.
//
// A tool of type mcp in a request declares an MCP server. decodeMCPTool adds it to the
// servers of the run, and mcpOutput makes output items of the events about it. A tool
// without server_url names a server of the org, which the caller then sees; all other
// servers of the org are hidden. replayMCPCall and replayMCPListTools read these items when
// a client sends them back.
//
// Each duty has a type: requestReader, storedResponses, storedItems, conversations and keyedRequests.
package responses
