// The SDK's helpers over one request: chat.completions.stream with its events,
// and the structured output of parse and stream with a zod schema.
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

const structured = { ...options.request, response_format: zodResponseFormat(Answer, "answer") };
try {
  switch (options.helper) {
    case "stream":
      await stream(options.request);
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
