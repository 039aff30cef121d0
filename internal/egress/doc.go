// Package egress is the only package that opens outgoing connections. A target
// that an org, a user, a model or a remote server can name is reached through a
// guarded client. A provider URL that the operator configured is not checked.
//
//	URL ──ParseTarget──► host ──names──► resolve once ──every address──► dial ──Control──► connection
//	     shape denied         class denied              class denied           checked again
//
//	out := egress.New(egress.DefaultPolicy(), egress.Options{})
//	defer out.CloseIdleConnections()
//	tools := out.Guarded(egress.GuardedOptions{})             // MCP servers, hooks, webhooks
//	providers := &http.Client{Transport: out.Operator()}      // the operator's own base URLs
//
// A refused target is a [*BlockedError]. net/http wraps it, so find it with
// errors.As. It ends the run in which it occurs.
//
// The guard connects only to addresses that it has checked. A name is resolved
// once, as an absolute name, and every address must pass. This blocks DNS
// rebinding: a resolver gains nothing by mixing public and private addresses or
// by changing its answer between the check and the connection. Proxies from the
// environment are ignored, and redirects are not followed.
package egress
