package sim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/event"
	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/budget"
	"github.com/turnpike-gateway/turnpike/internal/conversation"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/journal"
	"github.com/turnpike-gateway/turnpike/internal/loop"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/run"
	"github.com/turnpike-gateway/turnpike/item"
	"github.com/turnpike-gateway/turnpike/model"
)

// kind is what is stored of a talk, and how its client asks for it.
type kind struct {
	name     string
	prefix   string // of the ids
	resends  bool   // the client sends what it has seen again
	keeps    bool   // turns that have failed are in it, too, up to what their model has said
	together bool   // two turns can begin at the same time
	splits   bool   // and are then two lines

	begin  func(ctx context.Context, p *process, org, id string) error // nil = the first turn does
	ask    func(l *line, p *process, req *run.Request)
	rewind func(ctx context.Context, p *process, org, id, run string) error
	fork   func(ctx context.Context, p *process, org, id, other string) error // nil = it is in no store, as a rewind
}

func talkKinds() []kind {
	return []kind{
		{
			name: "chat session", resends: true,
			ask: func(l *line, _ *process, req *run.Request) {
				req.Continues = conversation.Ref{ID: l.id, Resent: true, TTL: journal.Kept, Member: "session_id"}
				req.Store = nil
			},
			rewind: func(ctx context.Context, p *process, org, id, run string) error {
				_, err := p.runner.Sessions().Rewind(ctx, sessionName(org, id), run)
				return err
			},
			fork: func(ctx context.Context, p *process, org, id, other string) error {
				_, err := p.runner.Sessions().Fork(ctx, sessionName(org, id), other, conversation.AllTurns, journal.Kept)
				return err
			},
		},
		{
			name: "named conversation", prefix: "conv_", keeps: true, together: true,
			begin: func(ctx context.Context, p *process, org, id string) error {
				return conversation.Save(ctx, conversations{p: p}, org, id, journal.Conversation{}, journal.Kept)
			},
			ask: func(l *line, _ *process, req *run.Request) {
				req.Continues = conversation.Ref{ID: l.id, Named: true, Member: "conversation", Code: "conversation_not_found"}
			},
			rewind: rewindNamed,
			fork: func(ctx context.Context, p *process, org, id, other string) error {
				return forkNamed(ctx, p, org, id, func(f *journal.Fork) error {
					f.ID = other
					return conversations{p: p}.Fork(ctx, org, *f, journal.Kept)
				})
			},
		},
		{
			name: "session of an agent", prefix: agent.SessionPrefix, keeps: true, together: true,
			begin: func(_ context.Context, p *process, org, id string) error {
				return p.w.store.sessions.CreateSession(context.Background(), agentSession(org, id), true)
			},
			ask: func(l *line, p *process, req *run.Request) {
				req.Continues = conversation.Ref{ID: l.id, Named: true, Member: "session_id", Code: "not_found"}
				req.Store.Owner, req.AgentSession = l.id, l.id
				body, _ := json.Marshal(map[string]string{"message": req.Key.Key})
				input := journal.SessionInput{
					ID: p.newID(agent.InputPrefix), Kind: agent.InputMessage, Principal: "p", Body: body, Key: "p " + req.Key.Key, Digest: req.Key.Hash,
				}
				req.Turn = &journal.SessionTurn{Session: l.id, Version: 1, Rounds: 25, Input: input}
			},
			rewind: rewindNamed,
			fork: func(ctx context.Context, p *process, org, id, other string) error {
				return forkNamed(ctx, p, org, id, func(f *journal.Fork) error {
					f.ID = other
					return conversations{p: p}.fork(ctx, org, *f, func() error {
						return p.w.store.sessions.ForkSession(ctx, agentSession(org, other), true, *f)
					})
				})
			},
		},
		{
			name: "chain of responses", together: true, splits: true,
			ask: func(l *line, _ *process, req *run.Request) {
				if last := l.last(); last != nil {
					req.Continues.ID = conversation.SegmentID(last.run, "")
					req.Continues.Member, req.Continues.Code = "previous_response_id", "previous_response_not_found"
				}
			},
		},
	}
}

func sessionName(org, id string) conversation.SessionName {
	return conversation.SessionName{Org: org, Principal: "p", ID: id}
}

func agentSession(org, id string) agent.Session {
	snapshot := agent.Snapshot{Agent: "agent", Version: 1}
	return agent.Session{Org: org, ID: id, Agent: "agent", Principal: "p", Snapshot: snapshot, CreatedAt: time.Now()}
}

func rewindNamed(ctx context.Context, p *process, org, id, run string) error {
	_, _, err := conversation.Rewind(ctx, conversations{p: p}, org, id, run, journal.Kept)
	return err
}

func forkNamed(ctx context.Context, p *process, org, id string, store func(*journal.Fork) error) error {
	for {
		f, _, err := conversation.ForkOf(ctx, conversations{p: p}, org, id, conversation.AllTurns, conversation.IsAdded)
		if err != nil {
			return err
		}
		again, err := conversation.Forked(ctx, f, store(f))
		if !again {
			return err
		}
	}
}

// talk is what one person says and hears: one turn after the other, or two at a time, on one or several lines.
type talk struct {
	*kind
	w       *world
	id, org string
	r       *rand.Rand
	all     []*remark
	stock   []*remark // of all: those that are still to be made
	lines   []*line
	forks   int
}

// line is a conversation as its client knows it.
type line struct {
	id     string
	groups [][]*remark // in order; those of one group began at the same time, and are in either order
}

// remark is a turn of a talk.
type remark struct {
	*client
	t        *talk
	mark     string // that nothing else in the world says
	line     *line  // as it was when the turn began
	twin     *remark
	items    []item.Item
	resent   []item.Item // how the client sends it again; of one that was answered
	run      string
	reason   event.Reason
	told     []string        // the marks that its client was told, in order
	words    map[string]bool // that its model has said
	sum      string          // the summary that its model has seen last; "" = none
	asked    bool            // its model has seen a prompt
	patience time.Duration   // how long its client waits at most before it sends it
	hasty    bool            // its client leaves once after the beginning
	meantime func(p *process)
}

// sumMark is the mark of a summary.
const sumMark = "sum="

// talk invents the talks of a world without sessions: one of each kind.
func (w *world) talk(slots int) {
	if w.swarm.sessions {
		return
	}
	all := talkKinds()
	first := w.chance("kinds").IntN(len(all))
	for i := range all {
		orgID := orgs()[i%len(orgs())]
		t := &talk{kind: &all[(first+i)%len(all)], w: w, org: orgID, id: fmt.Sprintf("%s-t%d", orgID, i)}
		t.r = w.chance("talks", t.id)
		t.lines = []*line{{id: fmt.Sprintf("%s%s-t%d", t.prefix, orgID, i)}}
		threshold := int64(500 + t.r.IntN(400))
		for n := range 5 + t.r.IntN(4) {
			t.all = append(t.all, t.newRemark(20*(10+i)+n, slots, threshold))
		}
		t.stock = t.all
		w.talks = append(w.talks, t)
	}
}

func (t *talk) newRemark(n, slots int, threshold int64) *remark {
	c := t.w.newClient(t.org, n, false, slots)
	m := &remark{client: c, t: t, mark: messageMark + c.id, words: map[string]bool{}, patience: 20 * time.Second}
	c.remark, c.window = m, 0
	c.key = &journal.SubmitKey{Principal: "p", Key: c.id, Hash: "h" + c.id}
	l := &c.like
	l.Key, l.Attach, l.WaitFor = c.key, true, 0
	l.Policy.Grade, l.Policy.NoStore = loop.Durable, false
	l.Policy.Continuations, l.Policy.Approvals, l.Policy.Budgets = 0, nil, nil
	l.Policy.Limits.Tokens, l.Policy.Limits.OnLimit, l.Policy.Limits.KeepBack = 0, "", 0
	if t.r.IntN(8) == 0 { // it is refused
		l.Policy.Budgets = []budget.Shared{{Scope: "nothing", Limit: budget.Amount{Tokens: 1}}}
	}
	l.Policy.Context = loop.ContextPolicy{Mode: loop.ContextAuto, Threshold: threshold}
	c.script = c.script[:t.r.IntN(min(len(c.script), 2)+1)]
	m.items = []item.Item{item.NewText(item.User, "org="+t.org+" "+m.mark+" "+strings.Repeat("words ", 20+t.r.IntN(40)))}
	m.items[0].Native.Dialect = model.DialectChat
	return m
}

// request makes the request of the turn, as a process decodes it.
func (m *remark) request(p *process, req *run.Request) {
	req.Store = &run.StoreOptions{RequestJSON: []byte("{}"), For: journal.Kept}
	req.Items = nil
	if m.t.resends {
		for _, other := range slices.Concat(m.line.groups...) {
			req.Items = append(req.Items, other.resent...)
		}
	}
	turn := 0
	req.Items = append(slices.Clone(req.Items), m.items...)
	for i := range req.Items {
		if req.Items[i].Role == item.Assistant {
			turn++
			req.Items[i].Turn = turn
		}
	}
	m.t.ask(m.line, p, req)
}

// live talks until everything is said.
func (t *talk) live() {
	defer func() {
		t.w.mu.Lock()
		delete(t.w.waits, t.id)
		t.w.mu.Unlock()
		t.w.bus.ring()
	}()
	begin := t.begin
	begins := &change{name: "is begun", do: func(ctx context.Context, p *process) error { return begin(ctx, p, t.org, t.lines[0].id) }}
	if begin != nil && !t.until(begins) {
		return
	}
	for goesOn := true; goesOn && len(t.stock) > 0; {
		l := t.lines[t.r.IntN(len(t.lines))]
		var c *change
		switch t.r.IntN(4) {
		case 0:
			c = t.forkOf(l)
		case 1:
			c = t.rewindOf(l)
		}
		switch {
		case c != nil && t.r.IntN(2) == 0:
			if goesOn = c.do == nil || t.until(c); goesOn {
				c.apply()
			}
		case t.r.IntN(4) == 0 && t.together && len(t.stock) > 1:
			goesOn = t.sayTwice(l)
		default:
			goesOn = t.say(l, c)
		}
	}
}

func (t *talk) next(l *line) *remark {
	m := t.stock[0]
	t.stock = t.stock[1:]
	m.line = &line{l.id, slices.Clone(l.groups)}
	return m
}

// say takes a turn, and tries to make a change in the meantime; nil = none.
func (t *talk) say(l *line, c *change) bool {
	m := t.next(l)
	made, unsure := false, false
	if c != nil && c.do != nil {
		m.hasty = true
		m.meantime = func(p *process) {
			made, unsure = t.try(c, p)
			if made && t.w.book.underWay(runKey{t.org, m.begun()}) {
				t.w.violate("I22: %s %s while its run %s is in progress", t.id, c.name, m.begun())
			}
			if !made && !unsure {
				t.w.saw(t.name + ": a change was refused, a run was in progress")
			}
		}
	}
	if !m.ends() {
		return false
	}
	l.add(m)
	if unsure {
		if !t.until(c) {
			return false
		}
		made = true
	}
	if made {
		c.apply()
	}
	return true
}

// sayTwice takes two turns at the same time.
func (t *talk) sayTwice(l *line) bool {
	a, b := t.next(l), t.next(l)
	a.twin, b.twin = b, a
	a.patience, b.patience = time.Second, time.Second
	b.script = a.script
	done := make(chan bool)
	t.w.actors.Go(func() { done <- b.ends() })
	ends := a.ends()
	if other := <-done; !other || !ends {
		return false
	}
	t.w.saw(t.name + ": two turns were taken at the same time")
	if !t.splits {
		l.add(a, b)
		return true
	}
	other := &line{l.id, slices.Clone(l.groups)}
	l.add(a)
	other.add(b)
	a.twin, b.twin = nil, nil
	t.lines = append(t.lines, other)
	return true
}

// add adds what a turn has left to those after it.
func (l *line) add(group ...*remark) {
	if m := group[0]; !m.t.keeps && !m.answered() {
		return
	}
	l.groups = append(slices.Clip(l.groups), group)
}

// last returns the last turn of a line; nil = it has none, or it has two.
func (l *line) last() *remark {
	if n := len(l.groups); n > 0 && len(l.groups[n-1]) == 1 {
		return l.groups[n-1][0]
	}
	return nil
}

// change is a rewind or a fork.
type change struct {
	name  string
	do    func(ctx context.Context, p *process) error // nil = the client alone does it
	apply func()
	again bool // nobody knows whether it was made already
}

func (t *talk) forkOf(l *line) *change {
	t.forks++
	other := &line{id: fmt.Sprintf("%s%s-t%s-f%d", t.prefix, t.org, t.id, t.forks)}
	c := &change{name: "is forked", apply: func() {
		other.groups = slices.Clone(l.groups)
		t.lines = append(t.lines, other)
		t.w.saw(t.name + ": it was forked")
	}}
	switch {
	case len(l.groups) == 0:
		return nil
	case t.fork != nil:
		c.do = func(ctx context.Context, p *process) error { return t.fork(ctx, p, t.org, l.id, other.id) }
	}
	return c
}

func (t *talk) rewindOf(l *line) *change {
	var at []int
	for i, group := range l.groups {
		if len(group) == 1 && group[0].answered() {
			at = append(at, i)
		}
	}
	if len(at) == 0 {
		return nil
	}
	before := at[t.r.IntN(len(at))]
	of := l.groups[before][0].run
	c := &change{name: "is rewound", apply: func() {
		l.groups = slices.Clip(l.groups[:before])
		t.w.saw(t.name + ": it was rewound")
	}}
	if t.rewind != nil {
		c.do = func(ctx context.Context, p *process) error { return t.rewind(ctx, p, t.org, l.id, of) }
	}
	return c
}

// until tries to make a change until it is made.
func (t *talk) until(c *change) bool {
	for {
		var p *process
		if !t.w.wait(context.Background(), t.id+" "+c.name, between(t.r, 0, 5*time.Second), func(chance *rand.Rand) {
			p = t.w.replicas[chance.IntN(replicas)].serving()
		}) || t.w.broken() {
			return false
		}
		if p == nil {
			continue
		}
		made, unsure := t.try(c, p)
		if made {
			return true
		}
		if !unsure {
			t.w.violate("I22: %s %s: refused, and its runs have ended", t.id, c.name)
		}
	}
}

// try tries to make a change once. It is refused if it is neither made nor unsure.
func (t *talk) try(c *change, p *process) (made, unsure bool) {
	err := c.do(context.Background(), p)
	var f *fault.Error
	isFault := errors.As(err, &f)
	switch {
	case err == nil, c.again && (errors.Is(err, org.ErrExists) || isFault && f.Reason == "run_not_found"):
		return true, false
	case isFault && f.Reason == "session_busy":
		return false, c.again
	case p.isDead(), errors.Is(err, errOver), errors.Is(err, errLost), errors.Is(err, errUnanswered), errors.Is(err, errKilled),
		isFault && f.Code == fault.Unavailable:
		c.again = true
		return false, true
	}
	t.w.violate("I21: %s %s and is answered %v", t.id, c.name, err)
	return false, false
}

// ends sends the request of the turn until its client was told its end.
func (m *remark) ends() bool {
	m.w.actors.Go(m.meddle)
	if !m.sends(m.patience) {
		return false
	}
	if conn := m.conns[len(m.conns)-1]; conn.finished() {
		m.hears(conn)
		return true
	}
	return false
}

// leaves makes the change of a client that has left once after the beginning.
func (m *remark) leaves(p *process) {
	if m == nil || !m.hasty || m.begun() == "" {
		return
	}
	m.hasty = false
	m.meantime(p)
}

// begun returns the run of the turn, if its client was told; "" = not yet.
func (m *remark) begun() string {
	for _, c := range m.conns {
		if len(c.events) > 0 {
			return c.events[0].(event.Started).RunID
		}
	}
	return ""
}

// hears takes what the client was told on the connection that has the end.
func (m *remark) hears(c *conn) {
	var text strings.Builder
	var texts []string
	m.run, m.told = m.begun(), []string{m.mark}
	tell := func(text string) { m.told = append(m.told, marksOf(item.NewText(item.User, text))...) }
	for _, e := range c.events {
		switch e := e.(type) {
		case event.RoundStarted:
			text.Reset()
		case event.TextDelta:
			text.WriteString(e.Text)
		case event.RoundDone:
			tell(text.String())
			texts = append(texts, text.String())
			text.Reset()
		case event.ToolDone:
			tell(e.Text)
		case event.Finished:
			tell(text.String())
			m.reason = e.Reason
		}
	}
	if !m.answered() {
		return
	}
	said := texts[len(texts)-1]
	if m.t.r.IntN(2) == 0 { // as streams have it
		said = strings.Join(texts, "\n\n")
	}
	answer := item.NewText(item.Assistant, said)
	answer.Turn = 1
	m.resent = append(slices.Clone(m.items), answer)
}

// answered reports whether the client was told an answer.
func (m *remark) answered() bool {
	return m.reason == event.Complete || m.reason == event.ClientCalls || m.reason == event.OutputCut
}

// ways returns what those after the turn may have of it.
func (m *remark) ways() [][]string {
	last := m.told[len(m.told)-1]
	switch {
	case m.answered():
		return [][]string{m.told}
	case m.reason.Limit(): // it can end while a model call that has failed is to be tried again, and the text of that is gone
		return [][]string{m.told, m.told[:max(1, len(m.told)-1)]}
	case m.reason == event.Cancelled, last != m.mark && (m.reason == event.Lost || m.reason == event.CallerGone):
	case last == m.mark, strings.HasPrefix(last, resultMark): // of its calls there is one line
		return [][]string{nil}
	}
	all := [][]string{nil}
	for n := range m.told {
		all = append(all, m.told[:n+1])
	}
	return all
}

// isOf reports whether a mark is one of the turn.
func (m *remark) isOf(mark string) bool {
	run := m.w.book.runOf(m.client)
	return mark == m.mark || m.words[mark] || run != "" && strings.HasPrefix(mark, resultMark+run+"/")
}

// seen is what a prompt has, with what a summary stands for in its place.
type seen struct {
	marks []string
	sum   string // "" = there is none
}

func (b *book) seenIn(items []item.Item) (s seen) {
	marks := marksOf(items...)
	for i, mark := range marks {
		if !strings.HasPrefix(mark, sumMark) {
			s.marks = append(s.marks, mark)
			continue
		}
		stands := b.sums[mark].marks
		switch {
		case i > 1 || i == 1 && !strings.HasPrefix(marks[0], messageMark):
			b.w.violate("I23: in front of the summary %s there is %v", mark, marks[:i])
		case i == 1 && !slices.Contains(stands, marks[0]): // its model had no room for it
			stands = append(marks[:1:1], stands...)
		}
		s.marks, s.sum = slices.Clone(stands), mark
	}
	return s
}

// checkTalk checks that the model of a turn sees what its client knows to be in front of it, once and in order, and then
// what the turn has added. It returns how much of that the model has said.
func (b *book) checkTalk(m *remark, req *model.Request) (said int) {
	s := b.seenIn(req.Items)
	own := slices.Index(s.marks, m.mark)
	for _, mark := range s.marks {
		if m.words[mark] {
			said++
		}
	}
	if isOrder(req) {
		return said
	}
	if own < 0 && s.sum != "" && !slices.ContainsFunc(s.marks, func(mark string) bool { return !m.isOf(mark) }) {
		m.asked, m.sum = true, s.sum // the model that has written the summary had no room for the question
		return said
	}
	if own < 0 {
		b.w.violate("I21: the model of %s does not see its question, but %v", m.id, s.marks)
		return said
	}
	for i, mark := range s.marks[own:] {
		if !m.isOf(mark) && (m.twin == nil || !m.twin.isOf(mark)) || slices.Contains(s.marks[:own+i], mark) {
			b.w.violate("I21: the model of %s sees %s after its question, in %v", m.id, mark, s.marks)
		}
	}
	front := slices.Clone(s.marks[:own])
	if m.twin != nil {
		front = slices.DeleteFunc(front, m.twin.isOf)
	}
	if !m.line.fits(front, s.sum != "") {
		b.w.violate("I21: the model of %s (%s) sees %v, and in front of it there is %s", m.id, m.t.name, front, m.line)
	}
	if len(m.line.groups) > 0 {
		b.w.saw(m.t.name + ": a turn had what those before it have said")
	}
	if last := m.line.last(); last != nil && last.answered() && last.sum != "" && !m.asked {
		if !b.derives(s.sum, last.sum, m.line.groups[0][0].told[0]) {
			b.w.violate("I23: the turn before %s (%s) has seen the summary %s, and its model sees %q", m.id, m.t.name, last.sum, s.sum)
		}
		b.w.saw("a turn of a talk began with the summary of one before it")
	}
	m.asked, m.sum = true, s.sum
	return said
}

// saysInTalk makes a text of a model one of a talk: an answer, or a summary, which stands for what the model sees.
func (b *book) saysInTalk(m *remark, req *model.Request, text string) string {
	if isOrder(req) {
		text = strings.ReplaceAll(text, wordMark, sumMark)
		b.sums[marksOf(item.NewText(item.User, text))[0]] = b.seenIn(req.Items)
		return text
	}
	for _, mark := range marksOf(item.NewText(item.User, text)) {
		m.words[mark] = true
	}
	return text
}

// derives reports whether a summary is another one, or stands for it. The model that wrote it may have had no room for what
// is before: then it did not see how the conversation began either.
func (b *book) derives(sum, other, first string) bool {
	for sum != "" && sum != other {
		wrote := b.sums[sum]
		if wrote.sum == "" && !slices.Contains(wrote.marks, first) {
			return true
		}
		sum = wrote.sum
	}
	return sum == other
}

// fits reports whether marks are those that the turns of a line have left. Of what a summary stands for, the begin may have
// been too long for the model that has written it.
func (l *line) fits(marks []string, summarized bool) bool {
	ends := map[int]bool{len(marks): true}
	for _, group := range slices.Backward(l.groups) {
		next := map[int]bool{}
		for _, way := range waysOf(group) {
			for end := range ends {
				n := min(len(way), end)
				if sameAsTold(marks[end-n:end], way[len(way)-n:]) && (n == len(way) || summarized) {
					next[end-n] = true
				}
			}
		}
		ends = next
	}
	return ends[0]
}

// waysOf returns what those after a group may have of it.
func waysOf(group []*remark) (all [][]string) {
	if len(group) == 1 {
		return group[0].ways()
	}
	for _, a := range group[0].ways() {
		for _, b := range group[1].ways() {
			all = append(all, slices.Concat(a, b), slices.Concat(b, a))
		}
	}
	return all
}

// sameAsTold reports whether the marks are the same. The results of one round may come in another order.
func sameAsTold(a, b []string) bool { return slices.Equal(inOrder(a), inOrder(b)) }

func inOrder(marks []string) []string {
	out := slices.Clone(marks)
	for i := 0; i < len(out); {
		end := i
		for end < len(out) && strings.HasPrefix(out[end], resultMark) {
			end++
		}
		slices.Sort(out[i:end])
		i = max(end, i+1)
	}
	return out
}

func (l *line) String() string {
	var all []string
	for _, group := range l.groups {
		var of []string
		for _, m := range group {
			of = append(of, fmt.Sprintf("%s %v", m.reason, m.told))
		}
		all = append(all, strings.Join(of, " beside "))
	}
	return "[" + strings.Join(all, ", ") + "]"
}

// underWay reports whether a run has begun and not ended.
func (b *book) underWay(key runKey) bool {
	h := b.of(key)
	return h.state.Accepted != nil && h.state.Finished == nil
}
