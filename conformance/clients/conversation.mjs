// Conversations with a model, as a program with an official client has them: it
// executes the calls of each turn, sends the turn back as the client returned it,
// with the results, and ends when a turn has no calls. options.api names the API:
// "chat" and "responses" are OpenAI's, "messages" is Anthropic's, "gemini" is Google's.
import Anthropic from "@anthropic-ai/sdk";
import { GoogleGenAI } from "@google/genai";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { describe, makeClient, open } from "./session.mjs";

const { options, emit, close } = await open();
const Answer = z.object({ sum: z.number(), words: z.string() });
const { model } = options;
const limit = 6000; // tokens of a turn

// The tools do what server-everything does, under its names and under other ones.
const execute = {
  echo: ({ message }) => `Echo: ${message}`,
  "get-sum": ({ a, b }) => `The sum of ${a} and ${b} is ${a + b}.`,
};
execute["my-echo"] = execute.echo;
execute["my-sum"] = execute["get-sum"];

async function chat(client, { system, prompt, images = [], tools = [], think, structured, stream }, seen) {
  const content = [{ type: "text", text: prompt }, ...images.map((i) => ({ type: "image_url", image_url: { url: i.url ?? `data:${i.media_type};base64,${i.data}` } }))];
  const messages = [{ role: "system", content: system }, { role: "user", content }];
  const request = { model, max_completion_tokens: limit };
  if (tools.length) request.tools = tools.map(({ name, description, schema }) => ({ type: "function", function: { name, description, parameters: schema } }));
  if (think) request.reasoning_effort = "low";
  if (structured) request.response_format = zodResponseFormat(Answer, "answer");
  for (;;) {
    const completion = await complete(client, { ...request, messages }, { structured, stream });
    const [{ message, finish_reason: finish }] = completion.choices;
    const calls = (message.tool_calls ?? []).map((c) => ({ id: c.id, ...pick(c.function, "name", "arguments") }));
    const { prompt_tokens: input, completion_tokens: output } = completion.usage;
    seen.turns.push({ text: message.content ?? "", reasoning: message.reasoning_content ?? "", calls, finish, usage: [input, output] });
    seen.parsed = message.parsed ?? null;
    if (!calls.length) return;
    messages.push(sendable(message), ...calls.map((c) => ({ role: "tool", tool_call_id: c.id, content: execute[c.name](JSON.parse(c.arguments)) })));
  }
}

async function complete(client, request, { structured, stream }) {
  if (!stream) return structured ? client.chat.completions.parse(request) : client.chat.completions.create(request);
  const events = client.chat.completions.stream({ ...request, stream_options: { include_usage: true } });
  let reasoning = ""; // the helper keeps the last delta of members that it does not know
  events.on("chunk", (c) => (reasoning += c.choices[0]?.delta.reasoning_content ?? ""));
  const completion = await events.finalChatCompletion();
  const [{ message }] = completion.choices;
  if (reasoning) message.reasoning_content = reasoning;
  return completion;
}

async function messages(client, { system, prompt, images = [], tools = [], think, structured, stream }, seen) {
  const content = [{ type: "text", text: prompt }, ...images.map((i) => ({ type: "image", source: i.url ? { type: "url", url: i.url } : { type: "base64", ...i } }))];
  const messages = [{ role: "user", content }];
  const request = { model, max_tokens: limit, system };
  if (tools.length) request.tools = tools.map(({ name, description, schema }) => ({ name, description, input_schema: schema }));
  if (think) request.thinking = { type: "enabled", budget_tokens: 2048 };
  if (structured) request.output_config = { format: zodOutputFormat(Answer) };
  for (;;) {
    const message = await create(client, { ...request, messages }, { structured, stream });
    const said = (type, member) => message.content.filter((b) => b.type === type).map((b) => b[member]).join("");
    const uses = message.content.filter((b) => b.type === "tool_use");
    const calls = uses.map(({ id, name, input }) => ({ id, name, arguments: JSON.stringify(input) }));
    seen.turns.push({
      text: said("text", "text"), reasoning: said("thinking", "thinking"), calls, finish: message.stop_reason,
      usage: [message.usage.input_tokens, message.usage.output_tokens],
    });
    seen.parsed = message.parsed_output ?? null;
    if (!calls.length) return;
    messages.push(pick(message, "role", "content"));
    messages.push({ role: "user", content: uses.map(({ id, name, input }) => ({ type: "tool_result", tool_use_id: id, content: execute[name](input) })) });
  }
}

async function create(client, request, { structured, stream }) {
  if (!stream) return structured ? client.messages.parse(request) : client.messages.create(request);
  const events = client.messages.stream(request);
  let text = "";
  events.on("text", (delta) => (text += delta));
  const message = await events.finalMessage();
  same(text, message.content.filter((b) => b.type === "text").map((b) => b.text).join(""));
  return message;
}

async function responses(client, { system, prompt, images = [], tools = [], think, structured, stream }, seen) {
  const content = [{ type: "input_text", text: prompt }, ...images.map((i) => ({ type: "input_image", detail: "auto", image_url: i.url ?? `data:${i.media_type};base64,${i.data}` }))];
  const input = [{ role: "user", content }];
  const request = { model, max_output_tokens: limit, instructions: system, store: false };
  if (tools.length) request.tools = tools.map(({ name, description, schema }) => ({ type: "function", name, description, parameters: schema, strict: false }));
  if (think) Object.assign(request, { reasoning: { effort: "low", summary: "auto" }, include: ["reasoning.encrypted_content"] });
  if (structured) request.text = { format: zodTextFormat(Answer, "answer") };
  for (;;) {
    const response = await respond(client, { ...request, input }, { structured, stream });
    const functions = response.output.filter((i) => i.type === "function_call");
    const calls = functions.map(({ call_id: id, name, arguments: text }) => ({ id, name, arguments: text }));
    const reasoning = response.output.flatMap((i) => (i.type === "reasoning" ? i.summary : [])).map((s) => s.text).join("");
    const finish = response.incomplete_details?.reason ?? response.status;
    seen.turns.push({ text: response.output_text, reasoning, calls, finish, usage: [response.usage.input_tokens, response.usage.output_tokens] });
    seen.parsed = response.output_parsed ?? null;
    if (!calls.length) return;
    input.push(...sendable(response.output));
    input.push(...calls.map((c) => ({ type: "function_call_output", call_id: c.id, output: execute[c.name](JSON.parse(c.arguments)) })));
  }
}

async function respond(client, request, { structured, stream }) {
  if (!stream) return structured ? client.responses.parse(request) : client.responses.create(request);
  const events = client.responses.stream(request);
  let text = "";
  events.on("response.output_text.delta", (event) => (text += event.delta));
  const response = await events.finalResponse();
  same(text, response.output_text);
  return response;
}

async function gemini(client, { system, prompt, images = [], tools = [], think, structured, stream }, seen) {
  const parts = [{ text: prompt }, ...images.map((i) => (i.url ? { fileData: { fileUri: i.url, mimeType: "image/png" } } : { inlineData: { mimeType: i.media_type, data: i.data } }))];
  const contents = [{ role: "user", parts }];
  const config = { systemInstruction: { parts: [{ text: system }] }, maxOutputTokens: limit };
  if (tools.length) config.tools = [{ functionDeclarations: tools.map(({ name, description, schema }) => ({ name, description, parametersJsonSchema: schema })) }];
  if (think) config.thinkingConfig = { includeThoughts: true, thinkingLevel: "low" };
  if (structured) {
    const { $schema, ...schema } = z.toJSONSchema(Answer);
    Object.assign(config, { responseMimeType: "application/json", responseJsonSchema: schema });
  }
  for (;;) {
    const { content, finish, usage } = await generate(client, { model, contents, config }, stream);
    const said = (thought) => content.filter((p) => p.text && !!p.thought === thought).map((p) => p.text).join("");
    const functions = content.flatMap((p) => p.functionCall ?? []);
    const calls = functions.map(({ id, name, args }) => ({ id, name, arguments: JSON.stringify(args) }));
    seen.turns.push({ text: said(false), reasoning: said(true), calls, finish, usage: [usage.promptTokenCount, usage.candidatesTokenCount] });
    seen.parsed = structured ? Answer.parse(JSON.parse(said(false))) : null;
    if (!calls.length) return;
    contents.push({ role: "model", parts: content });
    contents.push({ role: "user", parts: functions.map(({ id, name, args }) => ({ functionResponse: { id, name, response: { output: execute[name](args) } } })) });
  }
}

// generate returns the parts of an answer as they came.
async function generate(client, request, stream) {
  const answers = stream ? await client.models.generateContentStream(request) : [await client.models.generateContent(request)];
  const all = { content: [], finish: "", usage: {} };
  for await (const answer of answers) {
    const [candidate] = answer.candidates ?? [];
    all.content.push(...(candidate?.content?.parts ?? []));
    all.finish = candidate?.finishReason ?? all.finish;
    all.usage = answer.usageMetadata ?? all.usage;
  }
  return all;
}

// sendable leaves out what the helpers of OpenAI's client add and its APIs refuse.
const sendable = (value) => JSON.parse(JSON.stringify(value, (name, member) => (name === "parsed" || name === "parsed_arguments" ? undefined : member)));

const pick = (from, ...names) => Object.fromEntries(names.map((name) => [name, from[name]]));

// same throws unless the deltas of a stream make the text that the client collected.
function same(deltas, text) {
  if (deltas !== text) throw new Error(`the deltas ${JSON.stringify(deltas)} are not the text ${JSON.stringify(text)}`);
}

const anthropic = () => new Anthropic({ baseURL: options.base_url, apiKey: options.key, maxRetries: 0 });
const google = () => new GoogleGenAI({ apiKey: options.key, httpOptions: { baseUrl: options.base_url } });
const talk = { chat, messages, responses, gemini }[options.api];
const client = { messages: anthropic, gemini: google }[options.api]?.() ?? makeClient(options);
const each = [];
for (const conversation of options.conversations) {
  const seen = { turns: [], parsed: null, error: null };
  each.push(seen);
  try {
    await talk(client, conversation, seen);
  } catch (error) {
    seen.error = describe(error);
    if (error instanceof Anthropic.APIError) Object.assign(seen.error, { is_api_error: true, code: error.type ?? "" });
  }
}
emit({ done: { each } });
close();
