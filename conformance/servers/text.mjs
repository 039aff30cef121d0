// An MCP server over standard input and output, on the official SDK, whose one
// tool returns the text of the file that the command line names.
import { readFile } from "node:fs/promises";
import { McpServer } from "@modelcontextprotocol/sdk/server/mcp.js";
import { StdioServerTransport } from "@modelcontextprotocol/sdk/server/stdio.js";

const server = new McpServer({ name: "text", version: "1.0.0" });
server.registerTool("read_log", { description: "The whole log.", inputSchema: {} }, async () => ({
  content: [{ type: "text", text: await readFile(process.argv[2], "utf8") }],
}));
await server.connect(new StdioServerTransport());
