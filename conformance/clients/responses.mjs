// Uses of the Responses API with the SDK's own methods; options.helper names one. What
// the client can check by itself is checked here: a difference is an error of the script.
import { deepStrictEqual as equal, ok, rejects } from "node:assert/strict";
import OpenAI from "openai";
import { zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";
import { describe, emptySeen, makeClient, open } from "./session.mjs";

const { options, emit, close } = await open();
const client = makeClient(options);
const seen = { ...emptySeen(), parsed: null, items: [] };
const { request } = options;

// plain leaves out what the SDK adds to an answer.
const added = ["parsed", "parsed_arguments", "output_parsed", "_request_id"];
const plain = (value) => JSON.parse(JSON.stringify(value, (name, member) => (added.includes(name) ? undefined : member)));

// ask returns a response, made or streamed as the test wants it, which is stored as it is.
async function ask(request) {
  const response = options.stream ? await streamed(request) : await client.responses.create(request);
  equal(response.status, "completed");
  seen.items.push(response.output.map(line));
  if (request.store === false) await gone(response.id);
  else equal(plain(await client.responses.retrieve(response.id)), plain(response));
  return response;
}

// streamed returns the response of a stream, after a look at its events.
async function streamed(request) {
  const stream = client.responses.stream(request);
  const types = [];
  let text = "";
  for await (const event of stream) {
    equal(event.sequence_number, types.length);
    types.push(event.type);
    if (event.type === "response.output_text.delta") text += event.delta;
  }
  const response = await stream.finalResponse();
  const ends = (type) => types.filter((t) => t === type).length;
  equal([types[0], types[1], types.at(-1)], ["response.created", "response.in_progress", "response.completed"]);
  equal([ends("response.output_item.added"), ends("response.output_item.done")], [response.output.length, response.output.length]);
  equal(text, response.output_text);
  return response;
}

// gone checks that a response is not stored.
const gone = (id) => rejects(client.responses.retrieve(id), OpenAI.NotFoundError);

// line is an item of an output on one line, without its ids.
function line(item) {
  switch (item.type) {
    case "message":
      return `message ${item.content.map((part) => part.text).join("|")}`;
    case "reasoning":
      return `reasoning ${item.summary.map((part) => part.text).join("|")}`;
    case "mcp_list_tools":
      return `mcp_list_tools ${item.server_label} ${item.tools.map((tool) => tool.name).join(" ")}`;
    case "mcp_call":
      return `mcp_call ${item.server_label} ${item.name} ${item.arguments} ${item.status} ${item.output}`;
    case "mcp_approval_request":
      return `mcp_approval_request ${item.server_label} ${item.name} ${item.arguments}`;
    case "function_call":
      return `function_call ${item.name} ${item.arguments}`;
  }
  return item.type;
}

// stored makes a response, reads it, deletes it, and misses it.
async function stored() {
  const { id } = await ask(request);
  await client.responses.delete(id);
  await gone(id);
  await rejects(client.responses.delete(id), OpenAI.NotFoundError);
  await rejects(client.responses.create({ ...request, previous_response_id: id }), OpenAI.APIError);
  await ask({ ...request, store: false });
}

// replayed streams a durable response again, from its begin and from one of its events on.
async function replayed() {
  const collect = async (stream) => {
    const events = [];
    for await (const event of stream) events.push(event);
    return events;
  };
  const headers = { "Idempotency-Key": crypto.randomUUID() };
  const all = await collect(await client.responses.create({ ...request, stream: true }, { headers }));
  const { response } = all.at(-1);
  ok(all.some((event) => event.type.endsWith(".delta") && (event.delta.length + event.obfuscation.length) % 16 === 0));
  equal(await collect(await client.responses.retrieve(response.id, { stream: true })), all);
  for (const after of [0, 3, all.length - 1]) {
    equal(await collect(await client.responses.retrieve(response.id, { stream: true, starting_after: after })), all.slice(after + 1));
  }
  const plainly = await collect(await client.responses.retrieve(response.id, { stream: true, include_obfuscation: false }));
  equal(plainly, all.map(({ obfuscation, ...event }) => event));
  const stream = client.responses.stream({ response_id: response.id, starting_after: 2 });
  equal((await collect(stream)).map((event) => event.sequence_number), all.slice(3).map((event) => event.sequence_number));
  const { output_text, ...final } = plain(await stream.finalResponse());
  equal(final, plain(response));
  equal(output_text, response.output[0].content[0].text);
  seen.items.push(response.output.map(line));
}

// parsed reads structured output.
async function parsed() {
  const text = { format: zodTextFormat(z.object({ sum: z.number(), words: z.string() }), "answer") };
  const stream = options.stream && client.responses.stream({ ...request, text });
  const response = await (stream ? stream.finalResponse() : client.responses.parse({ ...request, text }));
  seen.parsed = response.output_parsed;
  equal(plain(await client.responses.retrieve(response.id)), plain(response));
}

// pages lists the items of an input of five messages, two at a time, both ways.
async function pages() {
  const { id } = await ask(request);
  const texts = { asc: [], desc: [] };
  const ids = new Set();
  for (const order of ["asc", "desc"]) {
    const first = await client.responses.inputItems.list(id, { limit: 2, order });
    equal([first.data.length, first.has_more, first.hasNextPage()], [2, true, true]);
    for await (const item of client.responses.inputItems.list(id, { limit: 2, order })) {
      texts[order].push(item.content[0].text);
      ids.add(item.id);
    }
  }
  equal(texts.asc, request.input.map((message) => message.content));
  equal(texts.desc, texts.asc.toReversed());
  equal(ids.size, request.input.length);
  const all = await client.responses.inputItems.list(id);
  equal([all.data.length, all.hasNextPage()], [request.input.length, false]);
}

// servers executes the function that the response ends with, and sends its output.
async function servers() {
  const first = await ask(request);
  const call = first.output.at(-1);
  equal(call.type, "function_call");
  const input = [{ type: "function_call_output", call_id: call.call_id, output: `12:34 in ${JSON.parse(call.arguments).place}` }];
  const second = await ask({ ...request, input, previous_response_id: first.id });
  equal(second.previous_response_id, first.id);
  const { data } = await client.responses.inputItems.list(second.id);
  equal(data.map(({ type, call_id, output }) => ({ type, call_id, output })), input);
}

// approvals approves a call, denies another, and sends its own items back for a third.
async function approvals() {
  const answer = (response, approve, reason) => {
    const requests = response.output.filter((item) => item.type === "mcp_approval_request");
    equal(requests.length, 1);
    return { type: "mcp_approval_response", approval_request_id: requests[0].id, approve, ...(reason && { reason }) };
  };
  const first = await ask(request);
  const approved = { ...request, previous_response_id: first.id, input: [answer(first, true)] };
  const other = makeClient({ ...options, key: options.other_key });
  await rejects(other.responses.create(approved), OpenAI.APIError);
  await rejects(client.responses.create({ ...approved, input: [{ ...approved.input[0], approval_request_id: "mcpr_0" }] }), OpenAI.BadRequestError);
  const second = await ask(approved);
  equal(second.output[0].approval_request_id, approved.input[0].approval_request_id);
  equal(plain(await client.responses.create(approved)), plain(await client.responses.retrieve(second.id)));
  const denied = { ...approved, input: [answer(first, false)] };
  equal((await client.responses.create(denied)).id, second.id);

  const { id } = await client.conversations.create();
  const third = await ask({ ...request, conversation: id });
  await ask({ ...request, conversation: id, input: [answer(third, false, "not today")] });

  const items = [{ role: "user", content: request.input }];
  const fifth = await ask({ ...request, store: false, input: items });
  const forged = plain(fifth.output).map((item) => (item.type === "mcp_approval_request" ? { ...item, arguments: '{"a":666,"b":0}' } : item));
  await ask({ ...request, store: false, input: [...items, ...forged, answer(fifth, true)] });
}

// chain asks three times, each time after the response before.
async function chain() {
  let previous = {};
  for (const content of options.turns) {
    const { id } = await ask({ ...request, ...previous, input: [{ role: "user", content }] });
    previous = { previous_response_id: id };
  }
}

// resend asks three times, each time with all items of input and output before.
async function resend() {
  const input = [];
  for (const content of options.turns) {
    input.push({ role: "user", content });
    const { output } = await ask({ ...request, store: false, input });
    input.push(...plain(output));
  }
}

// code runs code in two responses of one container, and a third one continues the container by its id.
async function code() {
  const run = async (request, outputs) => {
    const events = [];
    const stream = options.stream && client.responses.stream(request);
    if (stream) for await (const event of stream) events.push(event);
    const response = await (stream ? stream.finalResponse() : client.responses.create(request));
    equal(response.status, "completed");
    equal(plain(await client.responses.retrieve(response.id)), plain(response));
    const call = response.output[0];
    equal([call.type, call.status, call.code], ["code_interpreter_call", "completed", request.input]);
    equal(call.outputs, outputs);
    if (stream) {
      const own = events.filter((event) => event.item_id === call.id);
      const steps = ["_call.in_progress", "_call_code.delta", "_call_code.done", "_call.interpreting", "_call.completed"];
      equal(own.map((event) => event.type), steps.map((step) => `response.code_interpreter${step}`));
      equal([own[1].delta, own[2].code], [request.input, request.input]);
      equal(events.map((event) => event.sequence_number), [...events.keys()]);
    }
    seen.items.push(response.output.map(line));
    return response;
  };
  const first = await run({ ...request, input: "var n = 20; n" }, null);
  const { container_id } = first.output[0];
  const second = await run({ ...request, input: "n + 1", previous_response_id: first.id, include: ["code_interpreter_call.outputs"] }, [{ type: "logs", logs: "21" }]);
  const third = await run({ ...request, input: "n + 2", tools: [{ type: "code_interpreter", container: container_id }] }, null);
  equal([second.output[0].container_id, third.output[0].container_id], [container_id, container_id]);
  const { output } = await client.responses.retrieve(third.id, { include: ["code_interpreter_call.outputs"] });
  equal(output[0].outputs, [{ type: "logs", logs: "22" }]);
  const other = makeClient({ ...options, key: options.other_key });
  await missing((c) => c.responses.create({ ...request, input: "n", tools: [{ type: "code_interpreter", container: container_id }] }), other);
  await rejects(client.responses.create({ ...request, input: "n", tools: [{ type: "code_interpreter", container: { type: "auto", memory_limit: "4g" } }] }), OpenAI.BadRequestError);
}

// conversation has two responses in a conversation, and items of its own.
async function conversation() {
  const { conversations } = client;
  const [question, second, third] = options.turns;
  const made = await conversations.create({ metadata: { topic: "numbers" }, items: [{ role: "developer", content: "Call me Ada." }] });
  const { id } = made;
  equal([made.object, made.metadata], ["conversation", { topic: "numbers" }]);
  equal(plain(await conversations.retrieve(id)), plain(made));
  const metadata = { topic: "sums", for: "Ada ☀" };
  equal(plain(await conversations.update(id, { metadata })), { ...plain(made), metadata });

  const answers = [await ask({ ...request, input: question, conversation: id })];
  const added = await conversations.items.create(id, { items: [{ role: "user", content: "A note." }, { role: "user", content: "Another." }] });
  equal(added.data.map(said), ["A note.", "Another."]);
  equal(plain(await conversations.items.delete(added.last_id, { conversation_id: id })), { ...plain(made), metadata });
  await missing((c) => c.conversations.items.retrieve(added.last_id, { conversation_id: id }), client);
  answers.push(await ask({ ...request, input: second, conversation: { id } }));
  equal(answers.map((response) => response.conversation), [{ id }, { id }]);

  const want = ["Call me Ada.", question, "First.", "A note.", second, "Second."];
  const items = { asc: [], desc: [] };
  for (const order of ["asc", "desc"]) {
    const first = await conversations.items.list(id, { limit: 4, order });
    equal([first.data.length, first.has_more, first.hasNextPage()], [4, true, true]);
    for await (const item of conversations.items.list(id, { limit: 4, order })) items[order].push(plain(item));
  }
  equal(items.asc.map(said), want);
  equal(items.desc, items.asc.toReversed());
  for (const item of items.asc) equal(plain(await conversations.items.retrieve(item.id, { conversation_id: id })), item);
  equal(items.asc[2], plain(answers[0].output[0]));

  const of = { conversation_id: id };
  const item = items.asc[1].id;
  const uses = [
    (c) => c.conversations.retrieve(id),
    (c) => c.conversations.update(id, { metadata }),
    (c) => c.conversations.items.create(id, { items: [{ role: "user", content: "x" }] }),
    (c) => c.conversations.items.list(id),
    (c) => c.conversations.items.retrieve(item, of),
    (c) => c.conversations.items.delete(item, of),
    (c) => c.responses.create({ ...request, conversation: id }),
    (c) => c.conversations.delete(id),
  ];
  const references = [1, 2].map((i) => ({ type: "item_reference", id: items.asc[i].id }));
  const input = [...references, { role: "user", content: third }];
  const other = makeClient({ ...options, key: options.other_key });
  for (const use of [...uses, (c) => c.responses.create({ ...request, input }), (c) => c.responses.retrieve(answers[0].id)]) await missing(use, other);

  const { id: last } = await ask({ ...request, input });
  const { data } = await client.responses.inputItems.list(last, { order: "asc" });
  equal(data.map(said), [question, "First.", third]);
  equal(plain(await conversations.delete(id)), { id, object: "conversation.deleted", deleted: true });
  for (const use of uses) await missing(use, client);
  equal(plain(await client.responses.retrieve(answers[1].id)), plain(answers[1]));
}

// said is the text of a message.
const said = (item) => item.content[0].text;

// missing checks that a use of a client finds nothing.
const missing = (use, c) => rejects(async () => use(c), OpenAI.NotFoundError);

// failed has an answer that fails in its middle.
async function failed() {
  if (!options.stream) {
    await rejects(client.responses.create(request), (error) => error instanceof OpenAI.APIError && /the prompt is odd/.test(error.message));
    return;
  }
  const events = [];
  for await (const event of await client.responses.create({ ...request, stream: true })) events.push(event);
  const { type, response } = events.at(-1);
  equal([type, response.status, response.output.map(line)], ["response.failed", "failed", ["message Half of"]]);
  ok(/the prompt is odd/.test(response.error.message), response.error.message);
  equal(plain(await client.responses.retrieve(response.id)), { ...plain(response), output_text: "Half of" });
}

// progress asks for the extension progress: the helper reads a stream that shows all its tools,
// and one with hidden servers is refused.
async function progress() {
  const asks = makeClient({ ...options, header: { "turnpike-extensions": "progress" } });
  const hidden = asks.responses.stream({ ...request, tools: [] });
  await rejects(hidden.finalResponse(), (error) => error instanceof OpenAI.BadRequestError && /GET \/v1\/runs\/\{id\}\/events/.test(error.message));
  const stream = asks.responses.stream(request);
  for await (const event of stream) ok(event.type.startsWith("response."), event.type);
  seen.items.push((await stream.finalResponse()).output.map(line));
}

// together asks many times at once.
async function together() {
  const all = await Promise.all(Array.from({ length: options.times }, () => ask(request)));
  ok(new Set(all.map(({ id }) => id)).size === options.times);
}

// background makes responses in the background: one that is polled, one whose stream is left and continued, and one
// that is cancelled.
async function background() {
  const ended = async (id) => {
    for (;;) {
      const response = await client.responses.retrieve(id);
      if (response.status !== "queued" && response.status !== "in_progress") return response;
    }
  };
  const made = await client.responses.create({ ...request, background: true });
  equal([made.background, ["queued", "in_progress", "completed"].includes(made.status)], [true, true]);
  const polled = await ended(made.id);
  equal([polled.status, polled.background], ["completed", true]);
  seen.items.push(polled.output.map(line));

  const all = [];
  for await (const event of await client.responses.create({ ...request, background: true, stream: true })) {
    all.push(event);
    if (event.type === "response.queued") break; // it leaves
  }
  const { id } = all[0].response;
  equal(all.map(({ type }) => type), ["response.created", "response.queued"]);
  for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: all.at(-1).sequence_number })) all.push(event);
  equal(all.map((event) => event.sequence_number), all.map((_, i) => i));
  equal([all[2].type, all.at(-1).type], ["response.in_progress", "response.completed"]);
  const { output_text, ...kept } = plain(await client.responses.retrieve(id));
  equal(kept, plain(all.at(-1).response));
  for (const after of all.keys()) {
    const rest = [];
    for await (const event of await client.responses.retrieve(id, { stream: true, starting_after: after })) rest.push(event);
    equal(rest, all.slice(after + 1));
  }
  seen.items.push(kept.output.map(line));

  const cancelled = await client.responses.create({ ...request, background: true });
  const answer = await client.responses.cancel(cancelled.id);
  const last = await ended(cancelled.id);
  ok(["cancelled", "completed"].includes(last.status), last.status); // it may have been quicker
  const { output_text: text, ...object } = plain(last); // which the SDK adds to a retrieved response only
  equal(plain(await client.responses.cancel(cancelled.id)), object);
  equal(answer.id, cancelled.id);
  const { id: foreground } = await client.responses.create(request);
  await rejects(client.responses.cancel(foreground), (error) => error instanceof OpenAI.BadRequestError && error.code === "not_in_background");
}

try {
  await { background, code, stored, replayed, parsed, pages, conversation, failed, servers, approvals, chain, resend, progress, together }[options.helper]();
} catch (error) {
  seen.error = describe(error);
}
emit({ done: seen });
close();
