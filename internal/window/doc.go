// Package window keeps the prompts of a run within the context window of its model. It does no
// I/O and reads no clock: everything follows from its arguments.
//
//	               tokens > Threshold?
//	items ── Plan ──────────────────────► Compaction ── View ──► what the model sees
//	                                        │   ▲
//	                        SummaryPrompt ──┘   └── Summary, the answer to it
//
// A [Compaction] never deletes items. It says which results of old tool calls the model sees
// as placeholders, or which older part it sees as a summary. [View] applies it.
//
// Three invariants hold for every compaction:
//
//   - Below the threshold nothing changes, so that the prompt cache of the provider stays valid.
//   - A call and its result, reasoning and its calls, and the two halves of a tool that the
//     provider executed are either both seen or both summarised. Turns are not changed at all,
//     so that signatures stay valid.
//   - A compaction frees enough to make the next one far away: see [Settings.Least].
package window
