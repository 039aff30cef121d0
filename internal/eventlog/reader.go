package eventlog

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/memlimit"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// reader reads a run from the store, a batch at a time, and emits its events.
type reader struct {
	archive journal.Archive
	org, id string
	final   bool // see Follow.Final
	account *memlimit.Account
	sink    *emitter

	memory   *memlimit.Share // of the present batch of rows
	page     *memlimit.Share // of facts
	withheld *memlimit.Share // of the texts that were withheld from facts
	turn     *memlimit.Share // of the arguments of the latest turn's calls, which the state keeps
	log      fold
	facts    []loop.Fact // read and not yet folded
	groups   int         // groups of deltas of the model call in progress that were told
	replaced bool        // the pieces of the model call in progress are not wanted
	judged   bool        // it is known that they are not replaced, see lostItsOwner
	owned    func() bool // whether the run's owner is in this process and has read its journal
	failed   error       // of the sink
}

// storedContent is the content of a run in the store, by the ref of its row; nil for a row that the
// run does not have.
type storedContent func(ref string) (json.RawMessage, error)

func (c storedContent) itemsOf(ref string) ([]item.Item, error) {
	if ref == "" {
		return nil, nil
	}
	raw, err := c(ref)
	if err != nil {
		return nil, err
	}
	var items item.List
	if err := json.Unmarshal(raw, &items); err != nil {
		return nil, journal.Damaged(ref, err)
	}
	return items, nil
}

func (c storedContent) argumentsOf(call loop.Call) (json.RawMessage, error) {
	ref := call.Prepared.ArgsRef
	if ref == "" {
		return nil, nil
	}
	raw, err := c(ref)
	if err == nil && !json.Valid(raw) {
		err = journal.Damaged(ref, errors.New("no JSON"))
	}
	return raw, err
}

func (c storedContent) listedOf(ref string) ([]event.ListedServer, error) {
	raw, err := c(ref)
	if err != nil {
		return nil, err
	}
	var list []event.ListedServer
	if err := json.Unmarshal(raw, &list); err != nil {
		return nil, journal.Damaged(ref, err)
	}
	return list, nil
}

func (c storedContent) valueOf(ref string) (value builtin.Encoded, err error) {
	raw, err := c(ref)
	if err != nil {
		return value, err
	}
	if err := json.Unmarshal(raw, &value); err != nil {
		return value, journal.Damaged(ref, err)
	}
	return value, nil
}

func (c storedContent) failureOf(ref string) (*model.Error, error) {
	raw, err := c(ref)
	if err != nil {
		return nil, err
	}
	return recallFailure(ref, raw)
}

func (c storedContent) live() bool { return false }

func newReader(archive journal.Archive, f Follow, sink *emitter) *reader {
	s := &reader{archive: archive, org: f.Org, id: f.RunID, final: f.Final, account: f.Account, sink: sink}
	s.withheld = f.Account.Share()
	s.log.sink, s.log.stop = sink, func(err error) { s.failed = err }
	return s
}

func (s *reader) close() {
	s.page.Close()
	s.turn.Close()
	s.withheld.Close()
}

// advance emits the events of the next batch. It returns false if the store has nothing
// more at the moment.
func (s *reader) advance(ctx context.Context) (bool, error) {
	s.memory = s.account.Share()
	defer s.memory.Close()
	s.log.content = storedContent(func(ref string) (json.RawMessage, error) { return s.row(ctx, ref) })
	progress, err := s.read(ctx)
	var bad *journal.Unreadable
	if errors.As(err, &bad) || errors.Is(err, loop.ErrUnsafe) {
		return s.giveUp(ctx, err)
	}
	if err == nil {
		err = s.failed
	}
	return progress, err
}

func (s *reader) read(ctx context.Context) (bool, error) {
	if len(s.facts) == 0 {
		s.page.Close()
		s.page = s.account.Share()
		if err := s.more(ctx); err != nil {
			return false, err
		}
	}
	// The end of a model call is stored with the last of its deltas: they are read after
	// the facts.
	progress, err := s.tellGroups(ctx)
	if progress || err != nil || len(s.facts) == 0 {
		return progress, err
	}
	f := s.facts[0]
	s.facts = s.facts[1:]
	return true, s.fold(ctx, f)
}

// more reads the facts that follow.
func (s *reader) more(ctx context.Context) error {
	last := s.log.state.Seq
	if n := len(s.facts); n > 0 {
		last = s.facts[n-1].Seq
	}
	var next []loop.Fact
	err := journal.ReadBatch(s.page, func(limit int) (err error) {
		next, err = s.archive.Facts(ctx, s.org, s.id, last, limit)
		return err
	})
	if err != nil {
		return journal.ReadError(s.id, err)
	}
	s.facts = append(s.facts, next...)
	return nil
}

// row reads a row.
func (s *reader) row(ctx context.Context, ref string) (json.RawMessage, error) {
	rows, err := s.rowsOf(ctx, []string{ref})
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	return rows[0], nil
}

func (s *reader) rowsOf(ctx context.Context, refs []string) (rows []json.RawMessage, err error) {
	err = journal.ReadBatch(s.memory, func(limit int) (err error) {
		rows, err = s.archive.Rows(ctx, s.org, s.id, refs, limit)
		return err
	})
	return rows, journal.ReadError(s.id, err)
}

// fold folds a fact and emits its event.
func (s *reader) fold(ctx context.Context, f loop.Fact) error {
	p := &s.log
	if err := loop.CheckSafety(p.state, f); err != nil {
		return err
	}
	if a, ok := f.Body.(loop.Accepted); ok {
		if err := s.recallWithheld(ctx, a); err != nil {
			return err
		}
	}
	f.Body = loop.WithTexts(f.Body, p.texts[f.Seq])
	p.state = loop.Apply(p.state, f)
	switch b := f.Body.(type) {
	case loop.TurnStarted:
		s.groups, s.judged, s.replaced = 0, false, f.Seq < s.sink.told.Seq
	case loop.Turn:
		s.turn.Close()
		s.turn = s.account.Share()
		if err := s.turn.Acquire(argumentBytes(b)); err != nil {
			return err
		}
	case loop.Accepted, loop.Blocked, loop.CallDone, loop.CallPrepared, loop.CallResolved, loop.CallStarted,
		loop.CallWaiting, loop.CancelRequested, loop.Catalogued, loop.Compacted, loop.Expired, loop.Finished,
		loop.HookRan, loop.InputAdded, loop.LimitsRaised,
		loop.Parked, loop.Paused, loop.ReserveRefused, loop.Reserved, loop.Resumed, loop.Routed, loop.TurnFailed: // no deltas follow them
	}
	if s.toldBefore(f) && p.skip(f) {
		return nil
	}
	return p.tell(f)
}

// recallWithheld reads what was withheld from the facts of a run that has waited. It returns an
// error if the texts of the run are not stored.
func (s *reader) recallWithheld(ctx context.Context, a loop.Accepted) error {
	if !a.StoresNoTexts() {
		return nil
	}
	head, err := s.archive.Head(ctx, s.org, s.id)
	if err != nil {
		return journal.ReadError(s.id, err)
	}
	if head.Summary.Grade != loop.Durable {
		return fault.New(fault.NotFound, "run_not_stored", "the events of run %s are not stored, as its request asked", s.id)
	}
	row, err := s.row(ctx, textsRef)
	if err != nil {
		return err
	}
	if err := s.withheld.Acquire(2 * len(row)); err != nil {
		return err
	}
	s.log.texts, err = recallTexts(row)
	return err
}

// toldBefore reports whether the follower has all events of the fact, and needs none of them
// to know whether the run waits. The rows of such a fact, which may be large, are not read.
func (s *reader) toldBefore(f loop.Fact) bool {
	switch f.Body.Kind() {
	case loop.KindParked, loop.KindPaused, loop.KindLimitsRaised, loop.KindCallResolved, loop.KindExpired:
		return f.Seq < s.sink.told.Seq
	default:
		return f.Seq <= s.sink.told.Seq
	}
}

// argumentBytes is the size of the arguments of a turn's calls.
func argumentBytes(t loop.Turn) int {
	n := 0
	for _, c := range t.Calls {
		n += len(c.Arguments)
	}
	return n
}

// lostItsOwner reports whether the model call that has just begun was made again because
// its owner died, or will be, and its pieces are not wanted.
func (s *reader) lostItsOwner(ctx context.Context) (bool, error) {
	lost, ends := false, false
	for i := 0; ; i++ {
		if i == len(s.facts) {
			if err := s.more(ctx); err != nil {
				return false, err
			}
			if i == len(s.facts) {
				return lost && !ends, nil // in progress, or to be made again
			}
		}
		switch b := s.facts[i].Body.(type) {
		case loop.Resumed:
			lost = true
		case loop.CancelRequested, loop.Blocked:
			ends = true
		case loop.Expired:
			ends = ends || b.WaitID == "" && s.log.state.Cuts(b)
		case loop.TurnStarted:
			return true, nil
		case loop.Turn, loop.TurnFailed, loop.Finished:
			return false, nil
		case loop.Accepted, loop.CallDone, loop.CallPrepared, loop.CallResolved, loop.CallStarted,
			loop.CallWaiting, loop.Catalogued, loop.Compacted, loop.HookRan, loop.InputAdded, loop.LimitsRaised, loop.Parked, loop.Paused, loop.ReserveRefused, loop.Reserved, loop.Routed: // they do not decide it
		}
	}
}

// groupsAtOnce is how many groups of deltas are read at a time.
const groupsAtOnce = 64

// tellGroups emits stored deltas of the model call in progress, and returns false if there
// are no more at the moment.
func (s *reader) tellGroups(ctx context.Context) (bool, error) {
	p := &s.log
	if p.state.Grade != loop.Durable || !p.state.Attempt.Open || s.replaced {
		return false, nil
	}
	refs := make([]string, groupsAtOnce)
	for i := range refs {
		refs[i] = deltasRef(p.call.Seq, s.groups+1+i)
	}
	if s.final && !s.judged {
		if len(s.facts) == 0 && !s.owned() { // its owner may be dead: the next facts say so
			return false, nil
		}
		lost, err := s.lostItsOwner(ctx)
		if err != nil || lost {
			s.replaced = lost
			return false, err
		}
		s.judged = true
	}
	rows, err := s.rowsOf(ctx, refs)
	if err != nil {
		return false, err
	}
	for i, row := range rows {
		deltas, err := recallDeltas(refs[i], row)
		if err != nil {
			return false, err
		}
		s.groups++
		for _, d := range deltas {
			p.delta(p.round, d)
		}
	}
	return len(rows) > 0, nil
}

// giveUp ends the report of a run whose journal cannot be read on. The end of a run that was
// given up because of its journal is in it.
func (s *reader) giveUp(ctx context.Context, why error) (bool, error) {
	head, err := s.archive.Head(ctx, s.org, s.id)
	switch {
	case err != nil:
		return false, journal.ReadError(s.id, err)
	case head.Summary.Status == journal.IsAside:
		return false, journal.AsideError(s.id, head.Summary.Aside.Reason)
	case head.Summary.Status == journal.Done:
		if err := s.memory.Acquire(int(head.Bytes)); err != nil {
			return false, err
		}
		story, err := s.archive.Load(ctx, s.org, s.id)
		var bad *journal.Unreadable
		if errors.As(err, &bad) {
			story, err = bad.Story, nil
		}
		if err != nil {
			return false, journal.ReadError(s.id, err)
		}
		s.log.content = storedContent(func(string) (json.RawMessage, error) { return nil, nil })
		if s.log.replayEnd(story) {
			return true, s.failed
		}
	}
	if errors.Is(why, loop.ErrUnsafe) {
		return false, fault.New(fault.Internal, loop.CodeJournalRefused, "the journal of run %s cannot be repeated: %v", s.id, why)
	}
	return false, journal.AsideError(s.id, why.Error())
}
