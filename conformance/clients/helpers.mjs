// The SDK's helpers over one request: chat.completions.stream with its events,
// and the structured output of parse and stream with a zod schema.
import { deepStrictEqual as equal, ok } from "node:assert/strict";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { describe, emptySeen, makeClient, open } from "./session.mjs";

const { options, emit, close } = await open();
const seen = { ...emptySeen(), parsed: null, events: {} };
const client = makeClient(options);
const Answer = z.object({ sum: z.number(), words: z.string() });

function take(completion) {
  seen.usage = completion.usage ?? null;
  for (const choice of completion.choices) {
    seen.finish_reasons.push(choice.finish_reason);
    seen.text += choice.message.content ?? "";
    seen.parsed = choice.message.parsed ?? null;
  }
}

async function stream(request) {
  const stream = client.chat.completions.stream(request);
  for (const name of ["connect", "content", "content.done", "finalContent", "end", "error"]) {
    stream.on(name, () => (seen.events[name] = (seen.events[name] ?? 0) + 1));
  }
  take(await stream.finalChatCompletion());
}

// progress streams with the extension progress, through the helper and by plain iteration, and
// approves the calls that wait. The events of the extension leave no trace in the final object.
async function progress(request) {
  const note = async (chunk) => {
    if (!chunk.type) return;
    equal([chunk.choices, "id" in chunk], [[], false]);
    const name = chunk.phase ? `${chunk.type} ${chunk.phase}` : chunk.type;
    seen.events[name] = (seen.events[name] ?? 0) + 1;
    if (chunk.type === "agentic_tool_approval_required") {
      ok(chunk.run_id.startsWith("run_"));
      await client.post(`/approvals/${chunk.approval_id}`, { body: { decision: "approve" } });
    }
  };
  let first = true;
  for await (const chunk of await client.chat.completions.create({ ...request, stream: true })) {
    if (first) equal(chunk.choices[0].delta.role, "assistant");
    first = false;
    await note(chunk);
  }
  const stream = client.chat.completions.stream(request);
  const notes = [];
  stream.on("chunk", (chunk) => notes.push(note(chunk)));
  const final = await stream.finalChatCompletion();
  await Promise.all(notes);
  const trace = request.max_tool_rounds ? ["agentic_tool_calls"] : []; // of the last chunk
  equal(Object.keys(final).sort(), [...trace, "choices", "created", "id", "model", "object", "usage"]);
  take(final);
}

const structured = { ...options.request, response_format: zodResponseFormat(Answer, "answer") };
try {
  switch (options.helper) {
    case "stream":
      await stream(options.request);
      break;
    case "stream with progress":
      await progress(options.request);
      break;
    case "stream of structured output":
      await stream(structured);
      break;
    case "parse":
      take(await client.chat.completions.parse(structured));
      break;
  }
} catch (error) {
  seen.error = describe(error);
}
emit({ done: seen });
close();
