package outbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"
	"unicode/utf8"

	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/visible"
	"github.com/turnpike-gateway/turnpike/internal/webhook"
)

// errNoSecret reports that a secret of the webhook cannot be decrypted.
var errNoSecret = errors.New("the secret of the webhook cannot be decrypted: it was stored under another master key; rotate it with an overlap of 0s")

// errNoMasterKey reports that the gateway has no master key at the moment: the secret is not lost.
var errNoMasterKey = errors.New("the master key is missing, so the secret of the webhook cannot be decrypted: restore the file " +
	"master.key in the data directory, or set master_key, and restart the gateway")

// errNotDeclared reports a webhook of the configuration file that the file does not have any more.
var errNotDeclared = errors.New("the configuration file does not contain the webhook any more")

// After returns the delivery after an attempt that has ended now. jitter, in [0, 1), makes the delay of
// the next attempt longer: see [webhook.Delay].
func After(d journal.Delivery, r webhook.Result, now time.Time, jitter float64) journal.Delivery {
	d.Attempts++
	d.Status = r.Status
	switch {
	case r.Delivered():
		return d.End(journal.MessageDelivered, "", now.UnixMilli())
	case r.Gone():
		return d.End(journal.MessageGivenUp, "the receiver has answered 410 Gone", now.UnixMilli())
	}
	d.Error = describe(r)
	next := now.Add(webhook.Delay(d.Attempts, r.RetryAfter, jitter)).UnixMilli()
	if next >= d.GiveUpAt {
		return d.End(journal.MessageGivenUp, fmt.Sprintf("tried for %s; the last attempt: %s", hours(journal.GiveUpAfter), d.Error), now.UnixMilli())
	}
	d.NextAt = next
	return d
}

func hours(d time.Duration) string { return fmt.Sprintf("%d hours", int(d.Hours())) }

// maxError is how much of the text of a failure is stored, in bytes.
const maxError = 300

// describe says why an attempt has failed. It does not contain the URL, which can be a credential.
func describe(r webhook.Result) string {
	if r.Err == nil {
		return fmt.Sprintf("the receiver has answered %d", r.Status)
	}
	var blocked *egress.BlockedError
	var timeout net.Error
	switch {
	case errors.As(r.Err, &blocked):
		return blocked.Error()
	case errors.Is(r.Err, context.DeadlineExceeded), errors.As(r.Err, &timeout) && timeout.Timeout():
		return fmt.Sprintf("the receiver has not answered within %s", webhook.Timeout)
	}
	err := r.Err
	if outer := (*url.Error)(nil); errors.As(err, &outer) {
		err = outer.Err
	}
	text, _ := visible.Text(err.Error())
	remedy := ""
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		remedy = "; start the receiver, or correct the URL of the webhook"
	}
	if most := maxError - len(remedy); len(text) > most {
		text = text[:most]
		for !utf8.ValidString(text) {
			text = text[:len(text)-1]
		}
	}
	return text + remedy
}
