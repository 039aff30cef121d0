// Loaded before an example server that would listen on every address: in a test
// it listens on this machine only.
import net from "node:net";

const listen = net.Server.prototype.listen;
net.Server.prototype.listen = function (port, ...rest) {
  const done = rest.filter((argument) => typeof argument === "function");
  return listen.call(this, { host: "127.0.0.1", port: Number(port) }, ...done);
};
