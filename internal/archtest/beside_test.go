package archtest

// beside are the other files that a streaming chat completion with tools passes
// through, each with what it does there. A reader of the story can do without
// them. A file that joins the path of a request is entered here by somebody who
// knows why it must.
func beside() map[string]string {
	return map[string]string{
		// Hop 1 to 3: who asks, and for what.
		"internal/httpd/admit.go":          "refuses what is wrong whoever asks",
		"internal/httpd/stopping.go":       "counts what is under way, so that a stop can wait for it",
		"internal/httpd/body.go":           "holds the body to its size, and to coming at all",
		"internal/ledger/ledger.go":        "counts what the org and the process retain",
		"internal/ledger/account.go":       "counts what the request and its run retain",
		"internal/ledger/read.go":          "reads the body into a buffer that grows with what arrives",
		"internal/httpd/conn.go":           "waits for no client that takes nothing",
		"internal/jsonlimit/jsonlimit.go":  "refuses JSON that is all structure",
		"internal/app/directory.go":        "finds the caller by the hash of the key, and the server's headers just in time",
		"internal/httpd/admission.go":      "refuses one request too many before it is read",
		"internal/httpd/calm.go":           "keeps refusals back from those who come back at once",
		"internal/httpd/crowd.go":          "counts what is under way, by org",
		"internal/ratelimit/ratelimit.go":  "says whether the key and the org are within their rates",
		"internal/org/rate.go":             "says what a rate is",
		"internal/app/overload.go":         "says whether the store and the memory can bear more",
		"internal/store/sqlite/lag.go":     "says how far the store is behind",
		"internal/httpd/log.go":            "counts for the line that the log has of each request",
		"internal/org/org.go":              "says which roles may run",
		"internal/run/caller.go":           "says whether the loop is on for the caller",
		"internal/surface/chat/key.go":     "reads the Idempotency-Key, if there is one",
		"internal/surface/chat/scan.go":    "reads the body once, member by member",
		"internal/surface/chat/runtime.go": "puts the org's settings and the surface's defaults into the request",
		"internal/provider/route/route.go": "finds who serves the model",

		// Hop 4: the run and its record.
		"internal/run/append.go":           "asks the rules, stores facts, folds them",
		"internal/run/discover.go":         "performs Discover",
		"internal/run/finish.go":           "performs Finish",
		"internal/run/reread.go":           "words the hint that a cut result ends with, and offers its rest once there is one",
		"internal/run/handover.go":         "looks for ids of ours in what the client sent",
		"internal/run/observe.go":          "tells whoever watches the run, if somebody does",
		"internal/run/cached.go":           "asks whether an earlier result may be used",
		"internal/catalog/reuse.go":        "says which tools' results may be used again",
		"internal/run/drive.go":            "asks the rules for the next action, and performs it",
		"internal/run/accept.go":           "opens the journal",
		"internal/run/owner.go":            "knows which runs are under way here",
		"internal/crash/crash.go":          "nothing: it marks where tests kill the process",
		"internal/run/ports.go":            "folds facts into a run's summary for the store",
		"internal/store/sqlite/append.go":  "keeps the facts",
		"internal/store/sqlite/batch.go":   "puts a batch into the words of the file",
		"internal/store/sqlite/change.go":  "says what a batch does to the run's row",
		"internal/store/sqlite/opening.go": "takes the run's slot, and the client's key if there is one",
		"internal/store/sqlite/usage.go":   "counts what the org stores, and refuses a run beyond its cap",
		"internal/store/sqlite/budgets.go": "settles what is still set aside when the run ends",
		"internal/store/sqlite/audit.go":   "stores what auditors see",
		"internal/run/audited.go":          "says what auditors see of a fact",
		"internal/audit/audit.go":          "converts times to the unit of audit rows",
		"internal/audit/chain.go":          "binds a row to the one before it",
		"internal/audit/keeper.go":         "in the background: signs the ends of chains",
		"internal/audit/checkpoint.go":     "in the background: has what is signed",
		"internal/audit/witness.go":        "in the background: keeps it a second time",
		"internal/store/sqlite/archive.go": "keeps the run's row up to date",
		"internal/store/sqlite/head.go":    "knows where a run's journal ends, so that a light append need not wait",
		"internal/store/sqlite/writer.go":  "commits in groups",
		"internal/loop/codec.go":           "writes facts as the store keeps them",
		"tool/tool.go":                     "says which calls may be repeated",

		// Hop 5 and 8: what the rules are made of.
		"internal/loop/allowed.go":    "says whether a fact may follow",
		"internal/loop/fact.go":       "names the kinds of fact",
		"internal/loop/rules.go":      "seals the numbers that steer a run",
		"internal/loop/state.go":      "answers questions about a State",
		"internal/budget/budget.go":   "says which limit is used up",
		"internal/policy/progress.go": "notices a run that turns in circles",
		"event/reason.go":             "says which ends are limits and which are failures",

		// Hop 6: the model call.
		"model/model.go":                        "adds usage up",
		"item/item.go":                          "reads an item's text and makes results",
		"internal/app/providers.go":             "reveals the provider's key",
		"internal/provider/openai/provider.go":  "sends the call",
		"internal/provider/openai/request.go":   "builds the body",
		"internal/provider/openai/message.go":   "turns items into messages",
		"internal/provider/openai/content.go":   "puts the visible text of an answer together",
		"internal/provider/openai/object.go":    "keeps the members that the gateway does not interpret",
		"internal/provider/openai/reasoning.go": "keeps the reasoning that goes back to its provider",
		"internal/provider/openai/stream.go":    "performs the streaming call",
		"internal/provider/openai/decode.go":    "reads the answer, streamed or not",
		"internal/provider/openai/scan.go":      "finds the members of a chunk",
		"internal/provider/openai/chunk.go":     "folds a chunk into the turn",
		"internal/provider/openai/calls.go":     "puts tool calls together from their pieces",
		"internal/provider/openai/turn.go":      "makes the turn",
		"internal/sse/reader.go":                "reads events",
		"internal/sse/lines.go":                 "reads lines, whatever ends them",

		// Hop 7: the tools.
		"internal/catalog/catalog.go":   "asks all servers at once and keeps what they said",
		"internal/catalog/name.go":      "gives tools their names",
		"internal/catalog/set.go":       "is what a run may call",
		"internal/schema/schema.go":     "validates arguments",
		"internal/catalog/usable.go":    "says what may be offered, and takes hidden text out of it",
		"internal/catalog/report.go":    "tells the log what was left out",
		"internal/schema/effort.go":     "bounds what a check of arguments may cost",
		"internal/visible/text.go":      "takes out of a text what nobody would see",
		"internal/visible/json.go":      "does the same to a schema",
		"internal/toolexec/prepare.go":  "looks a call up, parses and validates it",
		"internal/toolexec/execute.go":  "calls the tool and words the result",
		"internal/toolexec/truncate.go": "keeps a result within its size",

		// Hop 7, further out: the MCP client.
		"internal/mcptool/places.go":     "waits for one of the places for calls in flight",
		"internal/mcptool/client.go":     "is the source of a server's tools",
		"internal/mcptool/server.go":     "says how the server is reached",
		"internal/mcptool/terms.go":      "remembers what was agreed on with it",
		"internal/mcptool/direct.go":     "speaks streamable HTTP with it",
		"internal/mcptool/listen.go":     "hears that its tools have changed",
		"internal/mcptool/flood.go":      "bounds what it sends unasked",
		"internal/mcptool/status.go":     "notes how it was last seen",
		"internal/mcptool/list.go":       "lists them",
		"internal/mcptool/definition.go": "keeps a definition as it was sent",
		"internal/mcptool/call.go":       "calls one",
		"internal/mcptool/result.go":     "decodes what came back",
		"internal/mcptool/retry.go":      "repeats what may be repeated",
		"internal/mcptool/connect.go":    "opens the session",
		"internal/mcptool/session.go":    "lends it out",
		"internal/mcptool/exchange.go":   "follows one request to its answer",
		"internal/mcptool/transport.go":  "carries the requests of the SDK",
		"internal/mcptool/headers.go":    "adds the server's headers",
		"internal/mcptool/answer.go":     "reads the HTTP answer",
		"internal/mcptool/events.go":     "finds the answer in a stream of events",
		"internal/mcptool/frame.go":      "finds the answer among frames",

		// Hop 7, the outermost: the way out.
		"internal/egress/guarded.go": "is the client for addresses that others name",
		"internal/egress/target.go":  "judges the shape of a URL",
		"internal/egress/host.go":    "judges the name",
		"internal/egress/resolve.go": "resolves it, once",
		"internal/egress/policy.go":  "judges the addresses",
		"internal/egress/address.go": "knows their classes",
		"internal/egress/dial.go":    "connects to the one that was judged",

		// Hop 9: the answer.
		"internal/surface/chat/answer.go":  "folds events into the answer's text",
		"internal/surface/chat/collect.go": "marshals objects",
		"internal/surface/chat/wire.go":    "has the objects of the dialect",
		"internal/sse/writer.go":           "writes an event in one piece",
		"internal/sse/heartbeats.go":       "keeps a silent stream alive",
	}
}

// sometimes are the files that a request passes through or not: on a slow machine
// it lasts until the log's lines are written.
func sometimes() map[string]string {
	return map[string]string{
		"internal/app/log.go":   "writes the lines that it has held back",
		"internal/app/print.go": "takes out of them what a terminal obeys",
	}
}
