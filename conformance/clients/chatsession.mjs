// A conversation with a session_id: the script resends what a user of the SDK sees, and nothing else. // J04
import { emptySeen, describe, makeClient, open } from "./session.mjs";

const { options, emit, close } = await open();
const seen = emptySeen();
const client = makeClient(options);

try {
  const messages = [];
  for (const content of ["one", "two", "three", "four", "five"]) {
    messages.push({ role: "user", content });
    const request = { ...options.request, messages };
    if (options.stream) {
      const stream = client.chat.completions.stream(request);
      seen.text = await stream.finalContent();
    } else {
      const { choices } = await client.chat.completions.create(request);
      seen.text = choices[0].message.content;
    }
    messages.push({ role: "assistant", content: seen.text });
  }
} catch (error) {
  seen.error = describe(error);
}
emit({ done: seen });
close();
