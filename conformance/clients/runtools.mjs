// The SDK's own tool loop: runTools calls the client's function whenever the
// answer asks for it and sends the result back until the answer is text.
import { describe, emptySeen, makeClient, open } from "./session.mjs";

const { options, emit, pause, close } = await open();
const seen = emptySeen();
const client = makeClient(options);

const getLocalTime = {
  type: "function",
  function: {
    name: "get_local_time",
    description: "The wall clock at a place, as the client knows it.",
    parameters: { type: "object", properties: { place: { type: "string" } }, required: ["place"] },
    parse: JSON.parse,
    function: async ({ place }) => {
      if (options.pause) await pause();
      return `12:34 in ${place}`;
    },
  },
};

try {
  const runner = client.chat.completions.runTools({ ...options.request, stream: options.stream, tools: [getLocalTime] });
  runner.on("functionToolCall", (call) => seen.tool_calls.push({ id: "", name: call.name, arguments: call.arguments }));
  seen.text = await runner.finalContent();
  const completions = runner.allChatCompletions();
  seen.finish_reasons = completions.flatMap((completion) => completion.choices.map((choice) => choice.finish_reason));
} catch (error) {
  seen.error = describe(error);
}
emit({ done: seen });
close();
