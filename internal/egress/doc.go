// Package egress is the only place that opens outgoing connections. What an
// org, a user, a model or a remote server can name is dialled through a guarded
// client; what the operator configured as a provider is dialled freely.
//
//	URL ──ParseTarget──► host ──names──► resolve once ──every address──► dial ──Control──► connection
//	     shape denied         class denied              class denied           checked again
//
//	out := egress.New(egress.DefaultPolicy(), egress.Options{})
//	defer out.CloseIdleConnections()
//	tools := out.Guarded(egress.GuardedOptions{})             // MCP servers, hooks, webhooks
//	providers := &http.Client{Transport: out.Operator()}      // the operator's own base URLs
//
// A refusal is a [*BlockedError]; it survives the wrapping of net/http, so
// errors.As finds it in what a client returns. It ends the run that met it.
//
// The guard connects to the address that it checked. A name is resolved once,
// as an absolute name, and every answer must pass: a resolver that mixes public
// and private answers, or changes its mind between the check and the connection,
// gains nothing. Environment proxies are ignored and redirects are not followed.
package egress
