// A conversation that is compacted, and goes on with what came of it.
import { deepStrictEqual as equal } from "node:assert/strict";
import { describe, emptySeen, makeClient, open } from "./session.mjs";

const { options, emit, close } = await open();
const client = makeClient(options);
const seen = emptySeen();

try {
  const first = await client.responses.create({ model: options.model, store: false, input: "The code word is heron." });
  const compact = async (input) => {
    const compacted = await client.responses.compact({ model: options.model, input });
    equal([compacted.object, compacted.output.map(({ type }) => type)], ["response.compaction", ["compaction"]]);
    return compacted.output;
  };
  let short = await compact([{ role: "user", content: "The code word is heron." }, ...first.output]);
  for (const content of ["Where is it noted?", "What is the code word, and where is it noted?"]) {
    const input = [...short, { role: "user", content }];
    const next = await client.responses.create({ model: options.model, store: false, input });
    seen.text = next.output_text;
    if (content.startsWith("Where")) short = await compact([...input, ...next.output]);
  }
} catch (error) {
  seen.error = describe(error);
}
emit({ done: seen });
close();
