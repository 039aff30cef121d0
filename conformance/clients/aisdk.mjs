// The AI SDK (npm package ai, with @ai-sdk/openai) streams an answer whose run searches, runs code and makes a file: over chat and over the
// Responses API. items has what came, a list for each API. // A07 G09 J16
import { createHash } from "node:crypto";
import { createOpenAI } from "@ai-sdk/openai";
import { streamText } from "ai";
import { emptySeen, describe, makeClient, open } from "./session.mjs";

const { options, emit, close } = await open();
const seen = emptySeen();
const digest = async (response) => createHash("sha256").update(Buffer.from(await response.arrayBuffer())).digest("hex");

// provider asks for extensions, and adds members to each body, as users of the SDK do for what the SDK does not know.
const provider = (extensions, members) =>
  createOpenAI({
    baseURL: options.base_url,
    apiKey: options.key,
    headers: { "turnpike-extensions": extensions },
    fetch: (url, init) => fetch(url, { ...init, body: JSON.stringify({ ...JSON.parse(init.body), ...members }) }),
  });

// ask returns the text of a stream and its parts by their types. A part that is an error is thrown.
async function ask(model, tools) {
  const result = streamText({ model, prompt: "draw", tools, maxRetries: 0, onError: () => {} });
  const parts = {};
  let text = "";
  for await (const part of result.fullStream) {
    if (part.type === "error") throw part.error;
    (parts[part.type] ??= []).push(part);
    if (part.type === "text-delta") text += part.text;
  }
  if ((await result.text) !== text) throw new Error(`the text is ${await result.text}, and the stream said ${text}`);
  const reason = await result.finishReason;
  return { text, parts, ended: `finish ${parts.finish?.length} ${reason}` };
}

// inChat asks with the members of the gateway. The files that the run has made are found in the list of the key's files.
async function inChat() {
  const { text, parts, ended } = await ask(provider("trace,progress,session,cost,files", { enable_code_execution: true, files: [{ name: "chart.png" }] }).chat(options.request.model));
  const client = makeClient(options);
  const made = (await client.files.list()).data.find((file) => file.filename === "chart.png");
  const calls = Object.keys(parts).filter((type) => type.startsWith("tool"));
  return [text === (await digest(await client.files.content(made.id))) ? "the digest that was printed" : `${text} was printed`, ended, `tools ${calls}`];
}

// inResponses asks with the hosted tools of the SDK.
async function inResponses() {
  const openai = provider("trace,session,cost,files", {});
  const { text, parts, ended } = await ask(openai.responses(options.request.model), {
    code_interpreter: openai.tools.codeInterpreter({}),
    web_search: openai.tools.webSearch({}),
  });
  const calls = (parts["tool-call"] ?? []).map((part) => part.toolName).sort();
  const results = (parts["tool-result"] ?? []).map((part) => part.toolName).sort();
  const cited = (parts.source ?? []).map((part) => part.filename ?? part.title);
  return [/^[0-9a-f]{64}$/.test(text) ? "the digest that was printed" : `${text} was printed`, ended, `calls ${calls}`, `results ${results}`, `sources ${cited}`];
}

try {
  seen.items = [await inChat(), await inResponses()];
} catch (error) {
  seen.error = describe(error);
}
emit({ done: seen });
close();
