// One chat completion, streamed or not, the list of models, or any other POST with
// a body as given.
import { collect, describe, emptySeen, makeClient, open } from "./session.mjs";

const { options, signal, emit, close } = await open();
const seen = emptySeen();
const client = makeClient(options, options.hash && ((sum) => (seen.body_sha256 = sum)));

async function streamed() {
  const stream = await client.chat.completions.create({ ...options.request, stream: true }, { signal });
  let announced = false;
  for await (const chunk of stream) {
    collect(seen, chunk);
    if (!announced && seen.text) {
      announced = true;
      emit({ first_text: seen.text });
    }
  }
}

async function whole() {
  const completion = await client.chat.completions.create(options.request, { signal });
  seen.usage = completion.usage;
  for (const choice of completion.choices) {
    seen.finish_reasons.push(choice.finish_reason);
    seen.text += choice.message.content ?? "";
    for (const call of choice.message.tool_calls ?? []) {
      seen.tool_calls.push({ id: call.id, ...call.function });
    }
  }
}

async function raw() {
  await client.post(options.path, { body: options.raw, headers: { "content-type": "application/json" } });
}

async function models() {
  const pick = ({ id, created, owned_by }) => ({ id, created, owned_by });
  seen.models = [];
  seen.retrieved = [];
  for await (const model of client.models.list()) seen.models.push(pick(model));
  for (const { id } of seen.models) seen.retrieved.push(pick(await client.models.retrieve(id)));
  await client.models.retrieve("gpt-unlisted");
}

try {
  if (options.models) await models();
  else if (options.path) await raw();
  else if (options.stream) await streamed();
  else await whole();
  if (signal.aborted) seen.error = { class: "aborted" }; // the SDK ends an aborted iteration without an error
} catch (error) {
  seen.error = describe(error);
}
emit({ done: seen });
close();
