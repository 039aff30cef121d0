// Package webhook signs and sends webhooks. They have the form of Standard
// Webhooks 1.0.0 (https://www.standardwebhooks.com), so that receivers verify
// them with its libraries.
//
//	k, _ := webhook.ParseSecret(value)                   // whsec_…
//	s := webhook.New(out.Guarded(egress.GuardedOptions{}))
//	r := s.Send(ctx, webhook.Endpoint{URL: url, Keys: []webhook.Key{k}}, msg, clock.Wall())
//	if !r.Delivered() {
//		next := at.Add(webhook.Delay(attempts, r.RetryAfter, rand.Float64()))
//	}
//
// One Send is one attempt. The caller stores messages, orders them and repeats
// them. Every attempt of a message has the same webhook-id and the same body, and
// the webhook-timestamp of the attempt.
//
// A message is thin: it names an object and what happened to it. The receiver
// reads the object with its own key.
package webhook
