// The prelude of a JavaScript session. Go calls the functions that it returns; code cannot reach them.
(function (write, files) {
  "use strict";
  delete globalThis.__write;
  delete globalThis.__files;
  const stringify = JSON.stringify, text = String, now = Date.now;
  const describe = (e) => e instanceof Error ? text(e) + (e.stack ? "\n" + text(e.stack).trimEnd() : "") : text(e);
  const format = (v) => {
    if (typeof v === "string") return v;
    if (typeof v === "function") return "[function " + (v.name || "anonymous") + "]";
    if (v instanceof Error) return describe(v);
    if (typeof v === "object" && v !== null) {
      try { return stringify(v) ?? text(v); } catch { return text(v); }
    }
    return typeof v === "symbol" ? v.toString() : Object.is(v, -0) ? "-0" : text(v);
  };
  const line = (fd) => (...args) => { write(fd, args.map(format).join(" ") + "\n"); };
  const out = line(1), err = line(2);
  globalThis.print = out;
  globalThis.console = { log: out, info: out, debug: out, warn: err, error: err };

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

  let state;
  return {
    // begin takes the promise of a program, whose value is {value}.
    begin(promise) {
      const s = (state = { exit: -1, text: "" });
      const done = (exit, make) => { try { s.text = make(); } catch { s.text = ""; } s.exit = exit; };
      promise.then(
        (r) => done(0, () => (r.value === undefined ? "" : typeof r.value === "string" ? stringify(r.value) : format(r.value))),
        (e) => done(1, () => describe(e)),
      );
    },
    exit: () => state.exit, // -1: the promise is pending
    text: () => text(state.text),
    // next returns in how many milliseconds a timer is due; -1: there is none.
    next: () => timers.reduce((least, t) => Math.min(least, Math.max(0, t.at - now())), Infinity) === Infinity ? -1
      : timers.reduce((least, t) => Math.min(least, Math.max(0, t.at - now())), Infinity),
    fire() {
      const t = timers.reduce((a, b) => (b.at < a.at ? b : a));
      if (t.every) t.at = now() + t.every; else timers = timers.filter((o) => o !== t);
      t.f(...t.args);
    },
    clear: () => { timers = []; },
  };
})(globalThis.__write, globalThis.__files)
