// Package crash names the points at which a test kills the gateway. In the
// program that people run they do nothing and cost nothing: only a build with
// the tag crashtest reads TURNPIKE_CRASH=POINT:N, and kills itself at the N-th
// time that it passes the point, or waits there. Such a build also has a wall clock that a test
// can set: see package clock.
package crash

// Point is a place in the code, by what is stored when the process dies there.
// after-X means that the transaction with X is committed, before-X that it is not.
type Point string

// The points that a durable run passes, in the order of a run.
const (
	// BeforeAccept: nothing of the run is stored, and the client has heard nothing.
	BeforeAccept Point = "before-accept"
	// AfterDelivery: a message was added to a run that is under way.
	AfterDelivery Point = "after-delivery"
	// BeforeInput: a run that was accepted without its input has begun, and the input is not stored.
	BeforeInput Point = "before-input"
	// AfterAccept: the run, its input and its idempotency key are stored. The
	// client has heard nothing.
	AfterAccept Point = "after-accept"
	// AfterClaim: the lease of a run that another process left is stored. Nothing
	// was done with the run.
	AfterClaim Point = "after-claim"
	// AfterModelIntent: the start of the model call and what it may cost at most
	// are stored. The request is not sent.
	AfterModelIntent Point = "after-model-intent"
	// AfterModelSend: the model has the request. Nothing of its answer is stored.
	AfterModelSend Point = "after-model-send"
	// AfterDeltaStored: a group of deltas is stored. The client has not got it.
	AfterDeltaStored Point = "after-delta-stored"
	// AfterDelta: a group of deltas with text is stored, and the client can get it. The
	// turn is not stored.
	AfterDelta Point = "after-delta"
	// BeforeTurn: the model's answer is complete. Nothing of it is stored.
	BeforeTurn Point = "before-turn"
	// AfterTurn: the turn and its usage are stored. None of its calls is.
	AfterTurn Point = "after-turn"
	// AfterCallIntent: the start of each tool call of the batch is stored. None is
	// sent.
	AfterCallIntent Point = "after-call-intent"
	// AfterCallSend: the tool has the request. No result is stored.
	AfterCallSend Point = "after-call-send"
	// BeforeResult: the tool has answered. The result is not stored.
	BeforeResult Point = "before-result"
	// AfterResult: the result is stored. The client has not heard of it.
	AfterResult Point = "after-result"
	// BeforeFinish: all turns and results are stored. The end of the run is not.
	BeforeFinish Point = "before-finish"
	// AfterFinish: the end of the run is stored. The client has not heard of it.
	AfterFinish Point = "after-finish"
	// AfterCancel: the request to cancel is stored. The run is still at work.
	AfterCancel Point = "after-cancel"
	// AfterPark: what has to be approved is stored, and the run waits. The client has not heard
	// of it.
	AfterPark Point = "after-park"
	// AfterDecision: a decision about a call that waits is stored. The run is not woken, and who
	// decided has not heard of it.
	AfterDecision Point = "after-decision"
	// AfterWebhookSend: the receiver of a webhook has answered. The outcome of the attempt is not
	// stored.
	AfterWebhookSend Point = "after-webhook-send"
	// AfterHookTold: a hook has answered after its run. The outcome is not stored.
	AfterHookTold Point = "after-hook-told"
	// AfterHookSend: an http hook has the request. It has not answered.
	AfterHookSend Point = "after-hook-send"
	// AfterHookAnswer: an http hook has answered. What it has decided is not stored.
	AfterHookAnswer Point = "after-hook-answer"
	// AfterHookRan: what a hook has decided about the start or the answer of a run is stored.
	AfterHookRan Point = "after-hook-ran"
	// AfterSummaryIntent: what a summary may cost at most is stored. The request is not sent.
	AfterSummaryIntent Point = "after-summary-intent"
	// AfterSummarySend: the model has the request for a summary. Nothing of its answer is stored.
	AfterSummarySend Point = "after-summary-send"
	// BeforeCompacted: the prompt is made shorter. Nothing of that is stored.
	BeforeCompacted Point = "before-compacted"
	// AfterCompacted: the shorter prompt is stored. No model has it.
	AfterCompacted Point = "after-compacted"
	// BeforeHandover: the time that a stop leaves to runs is over. Their leases are
	// still stored as held by this process.
	BeforeHandover Point = "before-handover"
)
