package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/item"
)

// Unreadable says that a part of what is stored for a run cannot be decoded: a newer
// build has written it, or it is damaged. It names the first such part, which is a fact
// or a row of the journal, or a conversation.
type Unreadable struct {
	Seq     int64           // of the fact; 0 = it is no fact
	Kind    loop.Kind       // of the fact
	Version int             // of the fact
	Ref     string          // of the row; empty = it is no row
	Key     ConversationKey // of the conversation; zero = it is none
	Err     error           // why it cannot be decoded

	Story *Story // what can be read: without the facts that cannot be decoded
	Last  int64  // the number of the journal's last fact
}

func (u *Unreadable) Error() string {
	switch {
	case u.Ref != "":
		return fmt.Sprintf("row %s cannot be decoded: %v", u.Ref, u.Err)
	case u.Key.ID != "":
		return fmt.Sprintf("%s cannot be decoded: %v", u.Key.title(), u.Err)
	}
	return fmt.Sprintf("fact %d cannot be decoded: %v", u.Seq, u.Err)
}

// Unwrap returns Err.
func (u *Unreadable) Unwrap() error { return u.Err }

// newer reports whether a newer build has written the fact.
func (u *Unreadable) newer() bool {
	return errors.Is(u.Err, loop.ErrUnknownKind) || errors.Is(u.Err, loop.ErrUnknownVersion) || errors.Is(u.Err, item.ErrUnknownVersion)
}

// Aside is the reason for which a run is set aside: no process claims it. The zero value
// means that it is not set aside.
type Aside struct {
	Reason string `json:"reason"` // for people
	Build  string `json:"build"`  // which could not decode what is stored
	At     int64  `json:"at"`     // Unix milliseconds

	// Kind and Version are those of the fact that a newer build has written; "" and 0 =
	// something else cannot be decoded.
	Kind    loop.Kind `json:"kind,omitempty"`
	Version int       `json:"version,omitempty"`
}

// Again reports whether a build may be able to go on with the run: it can decode the fact
// that was unknown or, if that was something else, it is another build.
func (a Aside) Again(build string) bool {
	if a.Kind != "" {
		return loop.CanDecode(a.Version, a.Kind) == nil
	}
	return a.Build != build
}

// setAside ends the lease of a run of which something cannot be decoded, and returns the error
// for its callers. No process claims the run until it is cancelled, or until a build starts that
// may be able to decode it. The error is errHandOver if somebody has written to the run since it
// was read, or has its lease.
func (d *driver) setAside(why *Unreadable) error {
	a := Aside{Reason: why.Error(), Build: d.o.Build, At: d.o.Now().UnixMilli()}
	if why.newer() {
		a.Kind, a.Version = why.Kind, why.Version
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(d.run.ctx), storeTimeout)
	defer cancel()
	done, err := d.o.Leases.SetAside(ctx, d.run.lease, cmp.Or(why.Last, d.run.state().Seq), a)
	if err != nil {
		d.run.storeFailed(err)
		return unavailable(fmt.Errorf("run %s: set aside: %w", d.run.lease.RunID, err))
	}
	if !done {
		return errHandOver
	}
	d.aside = true
	d.run.log.Error("run set aside: cancel it, or start the build that has written what cannot be decoded", "reason", a.Reason, "build", a.Build)
	return unreadable(d.run.lease.RunID, a.Reason)
}

// unreadable returns the error for a caller of a run that is set aside.
func unreadable(runID, reason string) error {
	return fault.New(fault.Internal, "journal_unreadable",
		"what is stored for run %s cannot be read by this build of the gateway (%s); its operator can cancel the run", runID, reason)
}

// restore makes runs claimable that an earlier build has set aside, and that this build may
// be able to decode.
func (r *Runner) restore(ctx context.Context) error {
	n, err := r.o.Leases.Restore(ctx, func(a Aside) bool { return a.Again(r.o.Build) })
	if err != nil {
		return err
	}
	if n > 0 {
		r.o.Log.Info("runs that were set aside are tried again", "runs", n)
	}
	return nil
}

// cancelled reports whether the facts have a request to end the run.
func cancelled(facts []loop.Fact) bool {
	for _, f := range facts {
		if f.Body.Kind() == loop.KindCancelRequested {
			return true
		}
	}
	return false
}
