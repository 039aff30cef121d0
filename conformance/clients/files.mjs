// A file that code has made, from the answer of a run to its content: in chat and in the Responses API, as JSON and as a stream of
// the SDK's helpers. items has what came, a list for each question. // G09 J16 J20 J23
import { createHash } from "node:crypto";
import { emptySeen, describe, makeClient, open } from "./session.mjs";

const { options, emit, close } = await open();
const seen = emptySeen();
const client = makeClient(options);
const digest = async (response) => createHash("sha256").update(Buffer.from(await response.arrayBuffer())).digest("hex");

async function chat() {
  const request = {
    ...options.request,
    messages: [{ role: "user", content: "draw" }],
    enable_code_execution: true,
    files: [{ name: "chart.png" }, { name: "report.pdf" }],
  };
  const events = [];
  let extra;
  let text;
  if (options.stream) {
    const stream = client.chat.completions.stream(request);
    for await (const chunk of stream) {
      if (chunk.type === "file_produced") events.push(chunk.file.id);
      if (chunk.files) extra = chunk;
    }
    text = await stream.finalContent();
  } else {
    extra = await client.chat.completions.create(request);
    text = extra.choices[0].message.content;
  }
  const [made, missing] = extra.files;
  const [call] = extra.agentic_tool_calls;
  const told = events.every((id) => id === made.id);
  return [
    text === (await digest(await client.files.content(made.id))) ? "the digest that was printed" : `${text} was printed`,
    `${made.filename ?? made.name} round ${made.source.round} told ${told ? events.length : events}`,
    call.file_ids.join() === made.id && call.round === made.source.round ? "attributed to its call" : `${made.id} ${JSON.stringify(call)}`,
    `${missing.filename ?? missing.name} ${missing.code}`,
  ];
}

async function responses() {
  const request = { ...options.request, input: "draw", tools: [{ type: "code_interpreter", container: { type: "auto" } }] };
  let annotations = 0;
  let response;
  if (options.stream) {
    const stream = client.responses.stream(request);
    stream.on("response.output_text.annotation.added", () => annotations++);
    response = await stream.finalResponse();
  } else {
    response = await client.responses.create(request);
  }
  const part = response.output.at(-1).content[0];
  const [cited] = part.annotations;
  const call = response.output.find((item) => item.type === "code_interpreter_call");
  const content = await client.containers.files.content.retrieve(cited.file_id, { container_id: cited.container_id });
  return [
    part.text === (await digest(content)) ? "the digest that was printed" : `${part.text} was printed`,
    `${cited.type} ${cited.filename} told ${annotations}`,
    cited.container_id === call.container_id ? "of the container of the call" : `${cited.container_id} ${call.container_id}`,
  ];
}

try {
  seen.items = [await chat(), await responses()];
} catch (error) {
  seen.error = describe(error);
}
emit({ done: seen });
close();
