// The prelude of a JavaScript session. Go calls the functions that it returns; code cannot reach them.
(function (write, files) {
  "use strict";
  delete globalThis.__write;
  delete globalThis.__files;
  const stringify = JSON.stringify, text = String, now = Date.now, isArray = Array.isArray, P = Promise;
  const most = 1 << 20; // characters of a value that is written

  // describe returns what is said of something thrown: an error with its stack and causes, or any other value.
  const describe = (e, depth = 0) => {
    if (!(e instanceof Error)) return format(e);
    let says = text(e) + (e.stack ? "\n" + text(e.stack).trimEnd() : "");
    if (depth < 5 && e.cause !== undefined) says += "\ncause: " + describe(e.cause, depth + 1);
    if (depth < 5 && isArray(e.errors)) for (const one of e.errors.slice(0, 10)) says += "\nerror: " + describe(one, depth + 1);
    return says;
  };
  // format returns a value as text: JSON where it is JSON; what JSON loses (Map, Set, BigInt, NaN, cycles) in the usual form.
  const format = (v) => {
    if (typeof v === "string") return v;
    if (typeof v === "function") return "[function " + (v.name || "anonymous") + "]";
    if (v instanceof Error) return describe(v);
    if (typeof v === "object" && v !== null) {
      try { return written(v); } catch { return text(v); }
    }
    return typeof v === "symbol" ? v.toString() : Object.is(v, -0) ? "-0" : text(v);
  };
  const written = (top) => {
    let out = "";
    const around = [];
    const list = (values, open, close, each) => {
      out += open;
      let first = true;
      for (const v of values) {
        if (out.length > most) break;
        const before = out;
        if (!first) out += ",";
        if (each(v) === false) out = before; else first = false;
      }
      out += close;
    };
    const put = (v) => {
      if (typeof v === "object" && v !== null && typeof v.toJSON === "function") v = v.toJSON();
      if (typeof v === "string") out += stringify(v);
      else if (typeof v !== "object" || v === null) out += typeof v === "function" || typeof v === "symbol" ? stringify(format(v)) : text(v);
      else if (around.includes(v)) out += "[Circular]";
      else {
        around.push(v);
        if (v instanceof Error) out += "[" + text(v) + "]";
        else if (v instanceof P) out += "[Promise]";
        else if (v instanceof RegExp) out += text(v);
        else if (v instanceof Map) list(v, "Map(" + v.size + ") {", "}", ([k, w]) => { put(k); out += " => "; put(w); });
        else if (v instanceof Set) list(v, "Set(" + v.size + ") {", "}", put);
        else if (isBuffer(v)) out += "[ArrayBuffer of " + v.byteLength + " bytes]";
        else if (isArray(v) || isView(v) && v.length !== undefined) list(v, isArray(v) ? "[" : v.constructor.name + "(" + v.length + ") [", "]", put);
        else if (v instanceof Number || v instanceof String || v instanceof Boolean) put(v.valueOf());
        else list(Object.keys(v), "{", "}", (k) => {
          const w = v[k];
          if (w === undefined || typeof w === "function" || typeof w === "symbol") return false; // as in JSON
          out += stringify(k) + ":";
          put(w);
        });
        around.pop();
      }
    };
    put(top);
    return out.length > most ? out.slice(0, most) + "…" : out;
  };

  // The console.
  let indent = "";
  const line = (fd) => (...args) => {
    const says = args.map(format).join(" ");
    write(fd, (indent === "" ? says : says.split("\n").map((one) => indent + one).join("\n")) + "\n");
  };
  const out = line(1), err = line(2), started = {}, counts = {};
  const since = (label) => label + ": " + (label in started ? now() - started[label] + " ms" : "no such timer");
  const group = (...args) => { if (args.length > 0) out(...args); indent += "  "; };
  // table writes a line for each entry, as a table of Markdown.
  const table = (data, columns) => {
    if (typeof data !== "object" || data === null) return out(data);
    const pair = !(data instanceof Map || data instanceof Set);
    const rows = (pair ? Object.entries(data) : [...data].map((v, i) => [i, v])).map(([k, v]) => [text(k), typeof v === "object" && v !== null ? v : { Value: v }]);
    const names = columns ?? [...new Set(rows.flatMap(([, row]) => Object.keys(row)))];
    const row = (cells) => "| " + cells.map((c) => c.replaceAll("|", "\\|").replaceAll("\n", " ")).join(" | ") + " |";
    out([row(["", ...names]), row(["", ...names].map(() => "---")), ...rows.map(([k, v]) => row([k, ...names.map((n) => v[n] === undefined ? "" : format(v[n]))]))].join("\n"));
  };
  globalThis.print = out;
  globalThis.console = {
    log: out, info: out, debug: out, dir: (v) => out(v), dirxml: out, table, warn: err, error: err,
    trace: (...args) => err("Trace:", ...args), assert: (ok, ...args) => { if (!ok) err("Assertion failed" + (args.length > 0 ? ":" : ""), ...args); },
    group, groupCollapsed: group, groupEnd: () => { indent = indent.slice(2); }, clear: () => {},
    time: (label = "default") => { started[label] = now(); },
    timeLog: (label = "default", ...args) => out(since(label), ...args),
    timeEnd: (label = "default") => { out(since(label)); delete started[label]; },
    count: (label = "default") => out(label + ": " + (counts[label] = (counts[label] ?? 0) + 1)), countReset: (label = "default") => { delete counts[label]; },
  };

  // Files. Go checks every path and every limit; here is only the form of the functions.
  const U8 = Uint8Array, isView = ArrayBuffer.isView, isBuffer = (v) => v instanceof ArrayBuffer, apply = Reflect.apply;
  const fromBase64 = U8.prototype.setFromBase64, toBase64 = U8.prototype.toBase64;
  const piece = 768 * 1024; // bytes; filePiece in Go
  const failed = (name, path, why) => new Error(name + "(" + stringify(path.length > 1000 ? path.slice(0, 1000) + "…" : path) + "): " + why);
  const ask = (name, path, what, a, b) => {
    if (typeof path !== "string") throw new TypeError(name + ": the path must be a string");
    let r;
    try { r = files(what, path, a, b); } catch { throw failed(name, path, "there is not enough memory"); }
    if (r.error !== "") throw failed(name, path, r.error);
    return r.value;
  };
  const bytesOf = (path) => {
    const size = ask("readFile", path, "size");
    let all;
    try { all = new U8(size); } catch { throw failed("readFile", path, "there is not enough memory for its " + size + " bytes"); }
    for (let at = 0; at < size; at += piece) apply(fromBase64, new U8(all.buffer, at), [ask("readFile", path, "bytes", at)]);
    return all;
  };
  globalThis.readFile = function readFile(path, as) {
    if (as === "bytes") return bytesOf(path);
    if (as === undefined || as === "text" || as === "utf8" || as === "utf-8") return ask("readFile", path, "text");
    throw new TypeError('readFile: the second argument must be "text", which is the default, or "bytes"');
  };
  globalThis.writeFile = function writeFile(path, data) {
    if (typeof data === "string") { ask("writeFile", path, "write", data); return; }
    if (!isView(data) && !isBuffer(data)) throw new TypeError("writeFile: the data must be a string, an ArrayBuffer or a typed array; use JSON.stringify for other values");
    const all = isView(data) ? new U8(data.buffer, data.byteOffset, data.byteLength) : new U8(data);
    ask("writeFile", path, "create", all.length);
    for (let at = 0; at < all.length; at += piece) {
      ask("writeFile", path, "put", at, apply(toBase64, new U8(all.buffer, all.byteOffset + at, Math.min(piece, all.length - at)), []));
    }
  };
  globalThis.listFiles = function listFiles() { return ask("listFiles", "", "list"); };

  let timers = [], last = 0;
  const add = (f, ms, args, every) => {
    if (typeof f !== "function") throw new TypeError("the callback is not a function");
    const wait = Math.max(0, Number(ms) || 0);
    timers.push({ id: ++last, at: now() + wait, every: every ? Math.max(1, wait) : 0, f, args });
    return last;
  };
  globalThis.setTimeout = (f, ms, ...args) => add(f, ms, args, false);
  globalThis.setInterval = (f, ms, ...args) => add(f, ms, args, true);
  globalThis.clearTimeout = globalThis.clearInterval = (id) => { timers = timers.filter((t) => t.id !== id); };

  let state, unhandled = new Map();
  const fail = (e) => {
    if (state.exit > 0) return;
    try { state.text = describe(e); } catch { state.text = ""; }
    state.exit = 1;
  };
  return {
    // begin takes the promise of a program, whose value is {value}. A promise as the value is awaited.
    begin(promise) {
      const s = (state = { exit: -1, text: "" });
      unhandled = new Map();
      indent = "";
      const done = (r) => {
        if (s.exit > 0) return;
        try { s.text = r.value === undefined ? "" : typeof r.value === "string" ? stringify(r.value) : format(r.value); } catch { s.text = ""; }
        s.exit = 0;
      };
      promise.then((r) => { if (r.value instanceof P) r.value.then((value) => done({ value }), fail); else done(r); }, fail);
    },
    // exit returns -1 while the promise is pending. A rejection that nothing handles is an error of the program.
    exit: () => {
      if (state.exit <= 0) for (const reason of unhandled.values()) fail(reason);
      return state.exit;
    },
    text: () => text(state.text),
    // rejected is called when a promise is rejected that nothing handles, and when it is handled later.
    rejected(promise, reason, handled) { if (handled) unhandled.delete(promise); else if (unhandled.size < 100) unhandled.set(promise, reason); },
    // next returns in how many milliseconds a timer is due; -1: there is none.
    next: () => timers.reduce((least, t) => Math.min(least, Math.max(0, t.at - now())), Infinity) === Infinity ? -1
      : timers.reduce((least, t) => Math.min(least, Math.max(0, t.at - now())), Infinity),
    fire() {
      const t = timers.reduce((a, b) => (b.at < a.at ? b : a));
      if (t.every) t.at = now() + t.every; else timers = timers.filter((o) => o !== t);
      try {
        t.f(...t.args);
      } catch (e) { // as elsewhere, the other timers do not run
        fail(e);
        timers = [];
      }
    },
    clear: () => { timers = []; },
    room: () => { new ArrayBuffer(1 << 20); }, // fails when memory is full
  };
})(globalThis.__write, globalThis.__files)
