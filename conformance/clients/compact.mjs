// A conversation that is compacted, and goes on with what came of it.
import { deepStrictEqual as equal } from "node:assert/strict";
import { describe, emptySeen, makeClient, open } from "./session.mjs";

const { options, emit, close } = await open();
const client = makeClient(options);
const seen = emptySeen();

try {
  const first = await client.responses.create({ model: options.model, store: false, input: "The code word is heron." });
  const compacted = await client.responses.compact({
    model: options.model,
    input: [{ role: "user", content: "The code word is heron." }, ...first.output],
  });
  equal([compacted.object, compacted.output.map(({ type }) => type)], ["response.compaction", ["compaction"]]);
  const next = await client.responses.create({
    model: options.model, store: false,
    input: [...compacted.output, { role: "user", content: "What is the code word?" }],
  });
  seen.text = next.output_text;
} catch (error) {
  seen.error = describe(error);
}
emit({ done: seen });
close();
