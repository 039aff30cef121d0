// Package make makes the built-in tools of orgs and of their agents, from the table of internal/builtin: what runs code, databases,
// buckets and the web belong to adapters, which it puts together.
//
//	org settings ──► Servers ── the server builtin_tools of an org ──► catalogue
//	agent        ──► Own ────── the built-in tools of an agent
//	                  └── makers, one for each kind: tools, forms, what is missing
package make

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"reflect"
	"slices"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/codetool"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/pdf"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
	"github.com/turnpike-gateway/turnpike/internal/storagetool"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/internal/webtool"
	"github.com/turnpike-gateway/turnpike/tool"
)

// Options are what the makers need. All are required, but for PDF.
type Options struct {
	Runtime   func(orgID string) org.Runtime // the settings of an org now
	Secret    func(ctx context.Context, orgID, reference string) (string, error)
	Client    *http.Client                                // is guarded
	Check     func(ctx context.Context, url string) error // what the outbound policy says of a URL
	PDF       *pdf.Reader                                 // nil = PDFs are not read
	Databases *sqltool.Connections
	Buckets   blob.Buckets
	Link      func(orgID, bucket, path string) (storagetool.Link, error) // a signed URL
	Files     *file.Library
	Sessions  Sessions
	Vision    Vision
	RunsCode  bool // the operator has a sandbox
	Shell     bool // the operator allows the tool shell
	Log       *slog.Logger
}

// Sessions finds the session of a run.
type Sessions interface {
	// TurnOf returns an error for a run that is not a turn of a session.
	TurnOf(ctx context.Context, orgID, runID string) (agent.Session, agent.SessionTurn, error)
}

// Builtins makes the built-in tools of orgs and of their agents. It is safe for concurrent use.
type Builtins struct {
	o         Options
	makers    map[builtin.Kind]maker
	sandbox   *sandbox.Manager   // set by Connect
	runner    Runner             // set by Connect
	preparing sync.WaitGroup     // of what Start has started
	stop      context.CancelFunc // ends it; nil = it was not started

	mu        sync.Mutex
	revisions uint64
	shown     map[string]shownBuiltins   // to the catalogue, last, by org
	web       map[string]*webtool.Source // by org: its runs share what it limits
}

// maker makes the tools of a kind.
type maker struct {
	// list returns the tools for an org. own is the tool of an agent. The caller holds mu.
	list func(orgID string, own agent.SnapshotBuiltin) tool.Source

	// forms returns the forms in which the switches of an org offer a tool; nil = the kind has none. The caller holds mu.
	forms func(orgID, named string, t tool.Tool) []catalog.Form

	// missing says what an org has to set before calls of a tool can succeed; "" = nothing. nil = never anything.
	missing func(ctx context.Context, orgID, name string) string
}

// New returns what makes the built-in tools. Call Connect before the first call of a tool.
func New(o Options) *Builtins {
	b := &Builtins{o: o, shown: map[string]shownBuiltins{}, web: map[string]*webtool.Source{}}
	b.makers = map[builtin.Kind]maker{
		builtin.Code:     {list: b.code, forms: b.codeForms, missing: b.codeMissing},
		builtin.Database: {list: b.database, missing: b.databaseMissing},
		builtin.Storage:  {list: b.storage, missing: b.storageMissing},
		builtin.Web:      {list: b.webTools, forms: webForms, missing: b.webMissing},
	}
	return b
}

// Connect adds what runs code, and what performs runs.
func (b *Builtins) Connect(s *sandbox.Manager, r Runner) { b.sandbox, b.runner = s, r }

// shownBuiltins are the built-in tools of an org.
type shownBuiltins struct {
	enabled, switched []org.BuiltinTool
	named             string          // what the org says of the names of tools
	all, engaged      *catalog.Server // see Servers
}

// Servers returns the server with the built-in tools of all runs of an org, and the one with those that its switches
// offer as well; nil = none. They stay the same until the settings of the tools change.
func (b *Builtins) Servers(orgID string, r org.Runtime) (all, engaged *catalog.Server) {
	enabled := r.EnabledBuiltins()
	switched := slices.DeleteFunc(r.SwitchedBuiltins(), func(t org.BuiltinTool) bool {
		row, _ := builtin.Find(t.Name)
		return row.Kind == builtin.Code && !b.o.RunsCode || t.Name == builtin.Shell && !b.o.Shell
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(enabled)+len(switched) == 0 {
		delete(b.shown, orgID)
		delete(b.web, orgID) // agents may have tools: theirs are made anew
		return nil, nil
	}
	last, ok := b.shown[orgID]
	if ok && reflect.DeepEqual(last.enabled, enabled) && reflect.DeepEqual(last.switched, switched) && last.named == r.ToolNames {
		return last.all, last.engaged
	}
	b.revisions++
	last = shownBuiltins{enabled: enabled, switched: switched, named: r.ToolNames}
	if len(enabled) > 0 {
		last.all = new(b.serverOf(orgID, enabled))
	}
	if len(switched) > 0 {
		more := slices.Clone(enabled)
		for _, t := range switched {
			row, _ := builtin.Find(t.Name)
			t.Hosted = row.Hosted != ""
			more = append(slices.DeleteFunc(more, func(have org.BuiltinTool) bool { return have.Name == t.Name }), t)
		}
		last.engaged = new(b.serverOf(orgID, more))
		last.engaged.Tools, last.engaged.Forms = namesOf(switched), true
		last.engaged.Source = formed{last.engaged.Source, func() []tool.Tool { return b.forms(orgID, r.ToolNames, more) }}
		if last.all != nil { // both share the list of tools
			last.all.Source, last.all.Tools = last.engaged.Source, namesOf(enabled)
		}
	}
	b.shown[orgID] = last
	return last.all, last.engaged
}

// serverOf returns the server with built-in tools of an org. The caller holds mu.
func (b *Builtins) serverOf(orgID string, all []org.BuiltinTool) catalog.Server {
	s := catalog.Server{Name: org.BuiltinTools, Trust: true, Revision: b.revisions, MaxUses: MaxUses(all)}
	s.Approval.Always, s.Prices = mcppool.AskingTools(all, org.BuiltinTool.Settings), mcppool.PricesOf(all, org.BuiltinTool.Settings)
	var tools tool.Tools
	for _, t := range all {
		tools = append(tools, b.tool(orgID, t, agent.SnapshotBuiltin{Name: t.Name}))
		if t.Hosted {
			row, _ := builtin.Find(t.Name)
			if s.Hosted == nil {
				s.Hosted, s.HostedOptions = map[string]string{}, b.hostedOptions(orgID)
			}
			s.Hosted[row.Hosted] = t.Name
		}
	}
	for _, t := range all {
		row, _ := builtin.Find(t.Name)
		if with, ok := builtin.Find(row.With); ok && s.Hosted[with.Hosted] != "" {
			s.HostedToo = map[string]string{with.Hosted: t.Name}
		}
	}
	s.Source, s.GivesFiles = tools, b.givesFiles
	return s
}

// formed is a source with the forms of its tools.
type formed struct {
	tool.Source
	forms func() []tool.Tool
}

// List implements [tool.Source].
func (s formed) List(ctx context.Context) ([]tool.Tool, error) {
	tools, err := s.Source.List(ctx)
	return append(slices.Clip(tools), s.forms()...), err
}

// forms returns the forms in which the switches of an org offer these tools. The sandbox is there when a run lists its tools.
func (b *Builtins) forms(orgID, named string, all []org.BuiltinTool) (out []tool.Tool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range all {
		row, _ := builtin.Find(t.Name)
		formsOf := b.makers[row.Kind].forms
		if formsOf == nil || row.Forms == nil {
			continue
		}
		forms := formsOf(orgID, named, b.find(orgID, agent.SnapshotBuiltin{Name: t.Name}))
		for _, f := range forms {
			if t.RequireApproval == org.ApprovalNever {
				f.Tool = unasking{f.Tool}
			}
			out = append(out, f)
		}
	}
	return out
}

// codeOptions returns what the tools that run code need.
func (b *Builtins) codeOptions(orgID string) codetool.Options {
	session := func(ctx context.Context, c tool.Call) string { return b.codeSession(ctx, orgID, c) }
	return codetool.Options{
		Org: orgID, Sandbox: b, Session: session, Files: sessionFiles{b, orgID, session},
		Keep: func(ctx context.Context, c tool.Call, path string, body io.ReadSeeker) (codetool.Kept, error) {
			return b.keepOutput(ctx, orgID, c, path, body)
		},
		Open: func(ctx context.Context, c tool.Call, in file.Input) (io.ReadCloser, error) {
			return b.openInput(ctx, orgID, c, in)
		},
	}
}

// givesFiles reports whether the calls of a hosted tool get the files of the conversation: those that run code do, where its working
// directory is here.
func (b *Builtins) givesFiles(kind string) bool {
	return kind == builtin.HostedCode && (b.KeepsFiles(sandbox.Python) || b.KeepsFiles(sandbox.JavaScript))
}

// hostedOptions returns what reads the options of the hosted tools that built-in tools of an org answer.
func (b *Builtins) hostedOptions(orgID string) func(kind string, options json.RawMessage) (json.RawMessage, error) {
	return func(kind string, options json.RawMessage) (json.RawMessage, error) {
		switch kind {
		case builtin.HostedCode:
			return codetool.ReadHosted(options)
		case builtin.HostedShell:
			return codetool.ReadHostedShell(options)
		case builtin.HostedSearch:
			return webtool.SearchOptions(b.o.Runtime(orgID).Web.Search, options)
		}
		return nil, fmt.Errorf("no built-in tool answers the hosted tool %q", kind)
	}
}

func namesOf(all []org.BuiltinTool) []string {
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.Name
	}
	return names
}

// Own returns the built-in tools of an agent, and what their calls cost.
func (b *Builtins) Own(orgID string, all []agent.SnapshotBuiltin) (tools tool.Tools, prices map[string]money.Nano) {
	said := b.Said(orgID, all)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, one := range all {
		tools = append(tools, b.tool(orgID, said[i], one))
	}
	return tools, mcppool.PricesOf(said, org.BuiltinTool.Settings)
}

// Said returns what the org says of the built-in tools of an agent.
func (b *Builtins) Said(orgID string, all []agent.SnapshotBuiltin) (said []org.BuiltinTool) {
	for _, one := range all {
		said = append(said, b.o.Runtime(orgID).BuiltinTool(one.Name))
	}
	return said
}

// tool returns a built-in tool. If the settings of the org say never, the tool does not ask for approval by itself.
func (b *Builtins) tool(orgID string, t org.BuiltinTool, own agent.SnapshotBuiltin) tool.Tool {
	made := b.find(orgID, own)
	if t.RequireApproval == org.ApprovalNever {
		return unasking{made}
	}
	return made
}

// find returns a built-in tool. Tools ask for the settings of their org at each call, so that a change acts on the
// next one. The caller holds mu.
func (b *Builtins) find(orgID string, own agent.SnapshotBuiltin) tool.Tool {
	row, _ := builtin.Find(own.Name)
	all, _ := b.makers[row.Kind].list(orgID, own).List(context.Background()) // never fails
	for _, t := range all {
		if t.Definition().Name == own.Name {
			return t
		}
	}
	panic("no built-in tool has the name " + own.Name) // settings and assignments are checked
}

// codeSession returns the session of code of a call: that of the container which the request names, that of its client, or
// that of the run. [file.ContainerOf] has the id of its container.
func (b *Builtins) codeSession(ctx context.Context, orgID string, c tool.Call) string {
	if runID, ok := file.RunOfContainer(codetool.ContainerAsked(c)); ok {
		return runID
	}
	if c.Session != "" {
		return c.Session
	}
	if s, _, err := b.o.Sessions.TurnOf(ctx, orgID, c.RunID); err == nil {
		return s.ID
	}
	return c.RunID
}

// code makes the tools that run code.
func (b *Builtins) code(orgID string, _ agent.SnapshotBuiltin) tool.Source {
	return codetool.New(b.codeOptions(orgID))
}

func (b *Builtins) codeForms(orgID, named string, _ tool.Tool) []catalog.Form {
	return codetool.Forms(b.codeOptions(orgID), b.sandbox.Languages(), named)
}

func (b *Builtins) codeMissing(_ context.Context, _, name string) string {
	if name == builtin.CodeExecute && !b.sandbox.Runs() {
		return "sandbox.drivers, which the operator sets"
	}
	return ""
}

// database makes the tools for databases.
func (b *Builtins) database(orgID string, own agent.SnapshotBuiltin) tool.Source {
	return sqltool.New(sqltool.Options{
		Org: orgID, Connections: b.o.Databases, Log: b.o.Log, Schemas: own.Schemas,
		Settings: func() []org.Database { return b.o.Runtime(orgID).Databases },
		Secret:   func(ctx context.Context, reference string) (string, error) { return b.o.Secret(ctx, orgID, reference) },
	})
}

func (b *Builtins) databaseMissing(_ context.Context, orgID, name string) string {
	all := b.o.Runtime(orgID).Databases
	switch {
	case name == builtin.DatabaseQuery && len(all) == 0:
		return "a database in databases"
	case name == builtin.DatabaseWrite && !slices.ContainsFunc(all, func(d org.Database) bool { return d.WriteURL != "" }):
		return "write_url of a database in databases"
	}
	return ""
}

// storage makes the tools for buckets.
func (b *Builtins) storage(orgID string, _ agent.SnapshotBuiltin) tool.Source {
	return storagetool.New(storagetool.Options{
		Org: orgID, Buckets: b.o.Buckets, Log: b.o.Log,
		Link: func(_ context.Context, bucket, path string) (storagetool.Link, error) {
			return b.o.Link(orgID, bucket, path)
		},
		Settings: func() []org.Bucket { return b.o.Runtime(orgID).Buckets },
	})
}

func (b *Builtins) storageMissing(_ context.Context, orgID, _ string) string {
	if len(b.o.Runtime(orgID).Buckets) == 0 {
		return "a bucket in buckets"
	}
	return ""
}

// webTools makes the tools for the web, once for an org.
func (b *Builtins) webTools(orgID string, _ agent.SnapshotBuiltin) tool.Source {
	if b.web[orgID] == nil {
		b.web[orgID] = webtool.New(webtool.Options{
			Org: orgID, Client: b.o.Client, Check: b.o.Check, PDF: b.readPDF, Log: b.o.Log,
			Describe: func(ctx context.Context, c tool.Call, image webtool.Image) (string, error) {
				return b.describeImage(ctx, orgID, c, image)
			},
			Settings: func() org.Web { return b.o.Runtime(orgID).Web },
			Secret:   func(ctx context.Context, reference string) (string, error) { return b.o.Secret(ctx, orgID, reference) },
		})
	}
	return b.web[orgID]
}

func webForms(_, _ string, t tool.Tool) []catalog.Form {
	return []catalog.Form{{Tool: t, As: builtin.FetchPage}}
}

func (b *Builtins) webMissing(ctx context.Context, orgID, name string) string {
	search := b.o.Runtime(orgID).Web.Search
	if name == builtin.WebSearch && cmp.Or(search.Provider, org.SearchExa) == org.SearchExa && search.APIKey == "" {
		if _, err := b.o.Secret(ctx, orgID, "secret:"+agent.ExaKey); err != nil {
			return "the setting " + agent.ExaKey + ", or another provider in web.search"
		}
	}
	return ""
}

// unasking is a tool that does not ask for approval.
type unasking struct{ tool.Tool }

// Class implements [tool.Classed].
func (t unasking) Class() tool.Class { return tool.ClassOf(t.Tool) }

// WithFiles implements [toolexec.Receiver].
func (t unasking) WithFiles(files *file.Set) tool.Tool {
	return unasking{toolexec.WithFiles(t.Tool, files)}
}

// Describe implements [toolexec.Describer].
func (t unasking) Describe(options json.RawMessage) string {
	if d, is := t.Tool.(toolexec.Describer); is {
		return d.Describe(options)
	}
	return ""
}

// MaxUses returns how often a run may call the tools; nil = as often as it likes.
func MaxUses(all []org.BuiltinTool) map[string]int {
	var out map[string]int
	for _, t := range all {
		if t.MaxUses == 0 {
			continue
		}
		if out == nil {
			out = map[string]int{}
		}
		out[t.Name] = t.MaxUses
	}
	return out
}

// Start compiles the reader of PDFs if an org reads pages, so that its first PDF does not wait. An org whose agents
// alone read pages waits for its first one. The caller calls Close.
func (b *Builtins) Start(ctx context.Context, orgs iter.Seq[string]) {
	if b.o.PDF == nil || !b.anyReads(orgs) {
		return
	}
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.preparing.Go(func() {
		if err := b.o.PDF.Prepare(ctx); err != nil && ctx.Err() == nil {
			b.o.Log.Error("the reader of PDFs does not start; web_scrape cannot read PDFs", "error", err)
		}
	})
}

// anyReads reports whether one of the orgs offers web_scrape.
func (b *Builtins) anyReads(orgs iter.Seq[string]) bool {
	for id := range orgs {
		r := b.o.Runtime(id)
		if slices.Contains(namesOf(append(r.EnabledBuiltins(), r.SwitchedBuiltins()...)), builtin.WebScrape) {
			return true
		}
	}
	return false
}

// Close ends what Start has started.
func (b *Builtins) Close() {
	if b.stop != nil {
		b.stop()
	}
	b.preparing.Wait()
}

// RunsCommands implements [codetool.Sandbox].
func (b *Builtins) RunsCommands() bool { return b.o.Shell && b.sandbox.RunsCommands() }

// KeepsFiles implements [codetool.Sandbox].
func (b *Builtins) KeepsFiles(l sandbox.Language) bool {
	return b.sandbox != nil && b.sandbox.KeepsFiles(l)
}

// Run implements [codetool.Sandbox].
func (b *Builtins) Run(ctx context.Context, r sandbox.Request) (sandbox.Outcome, error) {
	if err := b.o.Files.Touch(ctx, r.Org, file.ContainerOf(r.Session), ""); err != nil && ctx.Err() == nil {
		b.o.Log.Error("the files of a code session get no more time", "org", r.Org, "error", err)
	}
	return b.sandbox.Run(ctx, r)
}

// readPDF returns the text of a PDF.
func (b *Builtins) readPDF(ctx context.Context, data []byte) (string, error) {
	if b.o.PDF == nil {
		return "", errors.New("this program does not read PDFs")
	}
	return b.o.PDF.Read(ctx, data)
}

// MissingFor says what an org has to set before calls of a built-in tool can succeed; "" = nothing.
func (b *Builtins) MissingFor(ctx context.Context, orgID, name string) string {
	row, _ := builtin.Find(name)
	if missing := b.makers[row.Kind].missing; missing != nil {
		return missing(ctx, orgID, name)
	}
	return ""
}
