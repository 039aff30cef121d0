// Package httptool calls HTTP endpoints of customers as tools.
//
//	arguments ─► template ─► URL, query, JSON body ─► guarded client ─► endpoint
//	                                                                      │
//	model ◄── text, at most so many characters ◄── status, body ◄─────────┘
//
//	t, _ := httptool.New(settings, httptool.Options{Client: out.Guarded(egress.GuardedOptions{})})
//	result, err := t.Call(ctx, tool.Call{Arguments: json.RawMessage(`{"order_id":"A 7"}`)})
//
// The host of the URL is fixed. Arguments are escaped, and cannot lead to another path: see
// [ParseURL]. Every response is a result: one with a status of 200 to 299 is what the model gets,
// any other one is an error that the model is told about. Redirects are not followed.
//
// A call that gets no response is repeated if it was provably not sent, or if the class of the tool
// allows it. Each attempt of a call that may write has the same Idempotency-Key.
package httptool
