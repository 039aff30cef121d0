// Loaded before an MCP server over standard input: tells the test, at the URL in
// WITNESS, which process got a tools/call, as soon as it got it.
const emit = process.stdin.emit;
process.stdin.emit = function (event, ...args) {
  if (event === "data" && String(args[0]).includes('"tools/call"')) {
    fetch(process.env.WITNESS, { method: "POST", body: String(process.pid) }).catch(() => {});
  }
  return emit.call(this, event, ...args);
};
