// Loaded before an MCP server that would listen on every address: it listens on
// 127.0.0.1 only, says on standard output which port it got, and ends when its
// standard input does, so that it cannot outlive the test that started it.
import net from "node:net";

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  this.once("listening", () => console.log(JSON.stringify({ port: this.address().port })));
  const done = rest.filter((argument) => typeof argument === "function");
  return listen.call(this, { host: "127.0.0.1", port: Number(port) }, ...done);
};
process.stdin.on("end", () => process.exit(0));
process.stdin.resume();
