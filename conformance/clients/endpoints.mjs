// The endpoints beside chat and responses, with the SDK's own methods; options.helper names
// one. What the client can check by itself is checked here: a difference is an error of the
// script.
import { deepStrictEqual as equal, match, ok, rejects } from "node:assert/strict";
import { createReadStream } from "node:fs";
import OpenAI, { toFile } from "openai";
import { describe, emptySeen, makeClient, open } from "./session.mjs";

const { options, emit, close } = await open();
const client = makeClient(options);
const seen = emptySeen();

const uses = {
  // The client asks for base64 by itself, and makes numbers of it.
  async embeddings() {
    const { data, model, usage } = await client.embeddings.create({ model: "up/embed-1", input: ["one", "two ☀"] });
    equal(data.map(({ index, embedding }) => [index, ...embedding]), [[0, 0.5, -1], [1, 0.25, 2]]);
    equal([model, usage], ["embed-1", { prompt_tokens: 5, total_tokens: 5 }]);
  },

  async pictures() {
    const made = await client.images.generate({ model: "up/draw-1", prompt: "a square", n: 1 });
    equal(Buffer.from(made.data[0].b64_json, "base64").toString(), "a square, drawn");
    const image = await toFile(Buffer.from("a square, drawn"), "square.png", { type: "image/png" });
    const edited = await client.images.edit({ model: "up/draw-1", prompt: "a circle", image });
    equal(Buffer.from(edited.data[0].b64_json, "base64").toString(), "a circle, drawn over square.png of 15 bytes, image/png");
  },

  async moderation() {
    const { results, model } = await client.moderations.create({ model: "up/judge-1", input: "a rude word" });
    equal([model, results.map(({ flagged }) => flagged)], ["judge-1", [true]]);
  },

  // The SHA-256 of the file as the provider got it is the text.
  async transcription() {
    const { text } = await client.audio.transcriptions.create({ model: "up/hear-1", language: "de", file: createReadStream(options.path) });
    seen.text = text;
  },

  // The provider goes on when the test has seen first_text, and not before.
  async speech() {
    const response = await client.audio.speech.create({ model: "up/talk-1", voice: "alloy", input: "Good morning." });
    equal(response.headers.get("content-type"), "audio/mpeg");
    for await (const piece of response.body) {
      const first = seen.text === "";
      seen.text += Buffer.from(piece).toString();
      if (first) emit({ first_text: seen.text });
    }
  },

  async completion() {
    const stream = await client.completions.create({ model: "up/write-1", prompt: "Once", stream: true });
    for await (const chunk of stream) seen.text += chunk.choices[0].text;
  },

  // The gateway keeps files itself. // J17
  async files() {
    const text = "city,people\nBern,134591\n";
    const made = await client.files.create({ file: await toFile(Buffer.from(text), "cities.csv"), purpose: "user_data", expires_after: { anchor: "created_at", seconds: 3600 } });
    equal([made.object, made.filename, made.bytes, made.purpose, made.expires_at - made.created_at], ["file", "cities.csv", text.length, "user_data", 3600]);
    const second = await client.files.create({ file: await toFile(Buffer.from("x"), "x.txt"), purpose: "assistants" });
    const listed = [];
    for await (const file of client.files.list({ limit: 1 })) listed.push(file.id);
    equal(listed, [second.id, made.id]);
    equal(await client.files.retrieve(made.id), made);
    equal(await (await client.files.content(made.id)).text(), text);
    equal([(await client.files.delete(made.id)).deleted, (await client.files.delete(second.id)).deleted], [true, true]);
    await rejects(client.files.content(made.id), (error) => error instanceof OpenAI.NotFoundError && error.code === "file_not_found");
  },

  async refusals() {
    const refused = async (promise, type, status, code, says) => {
      await rejects(promise, (error) => {
        ok(error instanceof type, `${error?.constructor?.name}: ${error?.message}`);
        equal([error.status, error.code], [status, code]);
        match(error.message, says);
        return true;
      });
    };
    const shared = /all orgs of the gateway share the provider's key/;
    await refused(client.batches.list(), OpenAI.NotFoundError, 404, "not_relayed", shared);
    await refused(client.embeddings.create({ model: "claude-x", input: "x" }), OpenAI.BadRequestError, 400, "endpoint_not_supported", /provider claude has no endpoint/);
    await refused(client.moderations.create({ model: "up/busy-1", input: "x" }), OpenAI.RateLimitError, 429, "slow_down", /the provider is busy/);
  },
};

try {
  await uses[options.helper]();
} catch (error) {
  seen.error = describe(error);
}
emit({ done: seen });
close();
