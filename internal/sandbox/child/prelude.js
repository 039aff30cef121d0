// The prelude of a JavaScript session. Go calls the functions that it returns; code cannot reach them.
(function (write) {
  "use strict";
  delete globalThis.__write;
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
})(globalThis.__write)
