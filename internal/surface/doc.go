// Package surface is the kit of which the APIs for clients are made. It does what every
// API for model requests does, so that a surface is a decoder, an encoder and two tables
// of words. It decides nothing about a run: package loop does.
//
//	request ─► Handler.Serve ─┬─ loop off, and the provider speaks the dialect ─► the same bytes ─► relay.go
//	             │            │
//	             │            └─ otherwise ─► Surface.Decode ─► run ─┬─ Answer ─► Reply.Object    JSON
//	             │                                                   └─ Stream ─► Reply.Encoder   server-sent events
//	             │
//	             ├─ body.go     members, limits         ├─ models.go  who serves a model
//	             ├─ key.go      Idempotency-Key         └─ the settings of the run: package settings
//	             └─ errors.go, failure.go: what went wrong ─► Errors ─► the API's words
//
// [Handler] serves a [Surface]. [Answer] collects what the model said, and [Stream] passes
// it to an [Encoder]. Each surface lists its [Route]s, which the HTTP server serves. [Errors]
// is the error format of an API: the server answers with the format of the route also before
// the endpoint is called. [Answer.FinishWord] does the same for why a run ended.
//
// The APIs that make no model requests (runs, admin, agents, files) use [Route], [Admitted] or [Managed], [Errors],
// and the rest of the kit: [Fields] reads a body and names what is wrong in it, [Failed] maps the errors of stores,
// [OffsetPage], [NextPage] and [IDPage] are the pages of lists, and [TimeForm] writes times.
package surface
