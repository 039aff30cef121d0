// What every client script shares: options come as the first line of standard
// input, the word "abort" on a later line ends the request, any other line ends
// a pause, and what was seen leaves as JSON, one object per line.
import { createHash } from "node:crypto";
import { createInterface } from "node:readline";
import OpenAI from "openai";

const emit = (object) => process.stdout.write(JSON.stringify(object) + "\n");

export async function open() {
  const lines = createInterface({ input: process.stdin });
  const aborter = new AbortController();
  const options = await new Promise((resolve) => lines.once("line", (line) => resolve(JSON.parse(line))));
  lines.on("line", (line) => line === "abort" && aborter.abort());
  return {
    options,
    signal: aborter.signal,
    emit,
    pause: () => {
      emit({ paused: true });
      return new Promise((resolve) => lines.once("line", resolve));
    },
    close: () => {
      lines.close();
      process.stdin.destroy();
    },
  };
}

// makeClient changes only what a user would change, base URL and key, unless the
// options ask for more. onBody gets the SHA-256 of each request body as it left.
export function makeClient(options, onBody) {
  const settings = { baseURL: options.base_url, apiKey: options.key };
  if (options.header) settings.defaultHeaders = options.header;
  if (options.no_retries) settings.maxRetries = 0;
  if (onBody) {
    settings.fetch = (url, init) => {
      if (typeof init?.body === "string") onBody(createHash("sha256").update(init.body).digest("hex"));
      return fetch(url, init);
    };
  }
  return new OpenAI(settings);
}

// describe keeps of an error what the tests ask for.
export function describe(error) {
  return {
    class: error?.constructor?.name ?? typeof error,
    is_api_error: error instanceof OpenAI.APIError,
    status: error?.status ?? 0,
    code: String(error?.code ?? ""),
    param: String(error?.param ?? ""),
    message: String(error?.message ?? error),
    retry_after: error?.headers?.get?.("retry-after") ?? "",
  };
}

// collect adds what one chunk of a stream brings to what was seen before it.
export function collect(seen, chunk) {
  if (chunk.usage) seen.usage = chunk.usage;
  for (const choice of chunk.choices) {
    if (choice.finish_reason) seen.finish_reasons.push(choice.finish_reason);
    seen.text += choice.delta?.content ?? "";
    for (const part of choice.delta?.tool_calls ?? []) {
      const call = (seen.tool_calls[part.index] ??= { id: "", name: "", arguments: "" });
      call.id = part.id ?? call.id;
      call.name += part.function?.name ?? "";
      call.arguments += part.function?.arguments ?? "";
    }
  }
}

export function emptySeen() {
  return { text: "", finish_reasons: [], tool_calls: [], usage: null, body_sha256: "", error: null };
}
