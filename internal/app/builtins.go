package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"net/http"
	"path/filepath"
	"reflect"
	"slices"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/agent"
	"github.com/turnpike-gateway/turnpike/internal/blob"
	"github.com/turnpike-gateway/turnpike/internal/builtin"
	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/codetool"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/file"
	"github.com/turnpike-gateway/turnpike/internal/mcppool"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/pdf"
	"github.com/turnpike-gateway/turnpike/internal/sandbox"
	"github.com/turnpike-gateway/turnpike/internal/secret"
	"github.com/turnpike-gateway/turnpike/internal/sqltool"
	"github.com/turnpike-gateway/turnpike/internal/storagetool"
	"github.com/turnpike-gateway/turnpike/internal/toolexec"
	"github.com/turnpike-gateway/turnpike/internal/webtool"
	"github.com/turnpike-gateway/turnpike/tool"
)

// builtins makes the built-in tools of orgs and of their agents. It is safe for concurrent use.
type builtins struct {
	runtime   func(orgID string) org.Runtime // the settings of an org now
	secret    func(ctx context.Context, orgID, reference string) (string, error)
	session   func(ctx context.Context, orgID, runID string) string // that a run is a turn of, or the run itself
	client    *http.Client                                          // is guarded
	sandbox   *sandbox.Manager                                      // set by connect
	runsCode  bool                                                  // there is one by the configuration
	shell     bool                                                  // the operator allows the tool shell
	databases *sqltool.Connections
	buckets   blob.Buckets
	keep      func(orgID string) keep
	library   *file.Library // set by connect
	open      func(orgID string) open
	link      func(orgID, bucket, path string) (storagetool.Link, error)
	check     func(ctx context.Context, url string) error // what the outbound policy says of a URL
	describe  func(ctx context.Context, orgID string, c tool.Call, image webtool.Image) (string, error)
	pdf       *pdf.Reader        // set by connect; nil = PDFs are not read
	preparing sync.WaitGroup     // of what start has started
	stop      context.CancelFunc // ends it; nil = it was not started
	log       *slog.Logger

	mu        sync.Mutex
	revisions uint64
	shown     map[string]shownBuiltins   // to the catalogue, last, by org
	web       map[string]*webtool.Source // by org: its runs share what it limits
}

// shownBuiltins are the built-in tools of an org.
type shownBuiltins struct {
	enabled, switched []org.BuiltinTool
	named             string          // what the org says of the names of tools
	all, engaged      *catalog.Server // see servers
}

// servers returns the server with the built-in tools of all runs of an org, and the one with those that its switches
// offer as well; nil = none. They stay the same until the settings of the tools change.
func (b *builtins) servers(orgID string, r org.Runtime) (all, engaged *catalog.Server) {
	enabled := r.EnabledBuiltins()
	switched := slices.DeleteFunc(r.SwitchedBuiltins(), func(t org.BuiltinTool) bool {
		row, _ := builtin.Find(t.Name)
		return row.Kind == builtin.Code && !b.runsCode || t.Name == builtin.Shell && !b.shell
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
func (b *builtins) serverOf(orgID string, all []org.BuiltinTool) catalog.Server {
	s := catalog.Server{Name: org.BuiltinTools, Trust: true, Revision: b.revisions, MaxUses: maxUses(all)}
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
func (b *builtins) forms(orgID, named string, all []org.BuiltinTool) (out []tool.Tool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, t := range all {
		var forms []catalog.Form
		switch t.Name {
		case builtin.CodeExecute:
			forms = codetool.Forms(b.codeOptions(orgID), b.sandbox.Languages(), named)
		case builtin.WebScrape:
			forms = []catalog.Form{{Tool: b.find(orgID, agent.SnapshotBuiltin{Name: t.Name}), As: builtin.FetchPage}}
		}
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
func (b *builtins) codeOptions(orgID string) codetool.Options {
	session := func(ctx context.Context, c tool.Call) string { return b.codeSession(ctx, orgID, c) }
	return codetool.Options{Org: orgID, Sandbox: b, Session: session, Keep: b.keep(orgID), Open: b.open(orgID), Files: sessionFiles{b, orgID, session}}
}

// givesFiles reports whether the calls of a hosted tool get the files of the conversation: those that run code do, where its working directory
// is here.
func (b *builtins) givesFiles(kind string) bool {
	return kind == builtin.HostedCode && (b.KeepsFiles(sandbox.Python) || b.KeepsFiles(sandbox.JavaScript))
}

// hostedOptions returns what reads the options of the hosted tools that built-in tools of an org answer.
func (b *builtins) hostedOptions(orgID string) func(kind string, options json.RawMessage) (json.RawMessage, error) {
	return func(kind string, options json.RawMessage) (json.RawMessage, error) {
		switch kind {
		case builtin.HostedCode:
			return codetool.ReadHosted(options)
		case builtin.HostedShell:
			return codetool.ReadHostedShell(options)
		}
		return webtool.SearchOptions(b.runtime(orgID).Web.Search, options)
	}
}

func namesOf(all []org.BuiltinTool) []string {
	names := make([]string, len(all))
	for i, t := range all {
		names[i] = t.Name
	}
	return names
}

// own returns the built-in tools of an agent, and what their calls cost.
func (b *builtins) own(orgID string, all []agent.SnapshotBuiltin) (tools tool.Tools, prices map[string]money.Nano) {
	said := b.said(orgID, all)
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, one := range all {
		tools = append(tools, b.tool(orgID, said[i], one))
	}
	return tools, mcppool.PricesOf(said, org.BuiltinTool.Settings)
}

// said returns what the org says of the built-in tools of an agent.
func (b *builtins) said(orgID string, all []agent.SnapshotBuiltin) (said []org.BuiltinTool) {
	for _, one := range all {
		said = append(said, b.runtime(orgID).BuiltinTool(one.Name))
	}
	return said
}

// tool returns a built-in tool. If the settings of the org say never, the tool does not ask for approval by itself.
func (b *builtins) tool(orgID string, t org.BuiltinTool, own agent.SnapshotBuiltin) tool.Tool {
	made := b.find(orgID, own)
	if t.RequireApproval == org.ApprovalNever {
		return unasking{made}
	}
	return made
}

// find returns a built-in tool. Tools ask for the settings of their org at each call, so that a change acts on the
// next one. The caller holds mu.
func (b *builtins) find(orgID string, own agent.SnapshotBuiltin) tool.Tool {
	var all []tool.Tool
	switch row, _ := builtin.Find(own.Name); row.Kind {
	case builtin.Code:
		all, _ = codetool.New(b.codeOptions(orgID)).List(context.Background())
	case builtin.Database:
		all, _ = sqltool.New(sqltool.Options{
			Org: orgID, Connections: b.databases, Log: b.log, Schemas: own.Schemas,
			Settings: func() []org.Database { return b.runtime(orgID).Databases },
			Secret:   func(ctx context.Context, reference string) (string, error) { return b.secret(ctx, orgID, reference) },
		}).List(context.Background())
	case builtin.Storage:
		all, _ = storagetool.New(storagetool.Options{
			Org: orgID, Buckets: b.buckets, Log: b.log,
			Link: func(_ context.Context, bucket, path string) (storagetool.Link, error) {
				return b.link(orgID, bucket, path)
			},
			Settings: func() []org.Bucket { return b.runtime(orgID).Buckets },
		}).List(context.Background())
	case builtin.Web:
		all = b.webOf(orgID)
	}
	for _, t := range all {
		if t.Definition().Name == own.Name {
			return t
		}
	}
	panic("no built-in tool has the name " + own.Name) // settings and assignments are checked
}

// codeSession returns the session of code of a call: that of the container which the request names, that of its client, or
// that of the run. [file.ContainerOf] has the id of its container.
func (b *builtins) codeSession(ctx context.Context, orgID string, c tool.Call) string {
	if runID, ok := file.RunOfContainer(codetool.ContainerAsked(c)); ok {
		return runID
	}
	if c.Session != "" {
		return c.Session
	}
	return b.session(ctx, orgID, c.RunID)
}

// webOf returns the tools for the web of an org. The caller holds mu.
func (b *builtins) webOf(orgID string) []tool.Tool {
	if b.web[orgID] == nil {
		b.web[orgID] = webtool.New(webtool.Options{
			Org: orgID, Client: b.client, Check: b.check, PDF: b.readPDF, Log: b.log,
			Describe: func(ctx context.Context, c tool.Call, image webtool.Image) (string, error) {
				return b.describe(ctx, orgID, c, image)
			},
			Settings: func() org.Web { return b.runtime(orgID).Web },
			Secret:   func(ctx context.Context, reference string) (string, error) { return b.secret(ctx, orgID, reference) },
		})
	}
	all, _ := b.web[orgID].List(context.Background()) // never fails
	return all
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

// maxUses returns how often a run may call the tools; nil = as often as it likes.
func maxUses(all []org.BuiltinTool) map[string]int {
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

// newBuiltins returns what makes the built-in tools. The program is that of [Options].
func (a *App) newBuiltins(program []string) *builtins {
	return &builtins{
		runtime: func(orgID string) org.Runtime { return a.directory.Runtime(orgID) },
		secret:  a.orgSecret, session: a.sessionOf, buckets: a.buckets,
		link: a.linkToFile, keep: a.keepOutputs, open: a.openInputs, describe: a.describeImage, runsCode: a.config.Sandbox.Runs(), shell: a.config.Sandbox.Shell,
		check: func(ctx context.Context, url string) error {
			_, err := a.out.Resolve(ctx, url)
			return err
		},
		databases: sqltool.NewConnections(sqltool.ConnectionOptions{
			Dial: a.out.DialGuarded, OperatorDial: a.out.DialOperator, Own: sqltool.OwnFiles(a.config.Data), Program: program[:min(len(program), 1)], Log: a.log,
		}),
		client: a.out.Guarded(egress.GuardedOptions{}), log: a.log, shown: map[string]shownBuiltins{}, web: map[string]*webtool.Source{},
	}
}

// connect adds what runs code, and what reads PDFs: there is none if the program cannot start itself. It is called
// before the first call of a tool.
func (b *builtins) connect(a *App, program []string) (err error) {
	b.sandbox, b.library = a.sandbox, a.files
	if len(program) > 0 {
		b.pdf, err = pdf.New(pdf.Options{Program: program[:1], Cache: filepath.Join(a.config.Data, PDFDirectory)})
	}
	return err
}

// start compiles the reader of PDFs if an org reads pages, so that its first PDF does not wait. An org whose agents
// alone read pages waits for its first one. The caller calls close.
func (b *builtins) start(ctx context.Context, orgs iter.Seq[string]) {
	if b.pdf == nil || !b.anyReads(orgs) {
		return
	}
	ctx, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	b.preparing.Go(func() {
		if err := b.pdf.Prepare(ctx); err != nil && ctx.Err() == nil {
			b.log.Error("the reader of PDFs does not start; web_scrape cannot read PDFs", "error", err)
		}
	})
}

// anyReads reports whether one of the orgs offers web_scrape.
func (b *builtins) anyReads(orgs iter.Seq[string]) bool {
	for id := range orgs {
		r := b.runtime(id)
		if slices.ContainsFunc(append(r.EnabledBuiltins(), r.SwitchedBuiltins()...), func(t org.BuiltinTool) bool { return t.Name == builtin.WebScrape }) {
			return true
		}
	}
	return false
}

// close ends what start has started.
func (b *builtins) close() {
	if b.stop != nil {
		b.stop()
	}
	b.preparing.Wait()
}

// RunsCommands implements [codetool.Sandbox].
func (b *builtins) RunsCommands() bool { return b.shell && b.sandbox.RunsCommands() }

// KeepsFiles implements [codetool.Sandbox].
func (b *builtins) KeepsFiles(l sandbox.Language) bool {
	return b.sandbox != nil && b.sandbox.KeepsFiles(l)
}

// Run implements [codetool.Sandbox].
func (b *builtins) Run(ctx context.Context, r sandbox.Request) (sandbox.Outcome, error) {
	if err := b.library.Touch(ctx, r.Org, file.ContainerOf(r.Session), ""); err != nil && ctx.Err() == nil {
		b.log.Error("the files of a code session get no more time", "org", r.Org, "error", err)
	}
	return b.sandbox.Run(ctx, r)
}

// readPDF returns the text of a PDF.
func (b *builtins) readPDF(ctx context.Context, data []byte) (string, error) {
	if b.pdf == nil {
		return "", errors.New("this program does not read PDFs")
	}
	return b.pdf.Read(ctx, data)
}

// orgSecret returns what a reference in the settings of an org stands for. Only those of the configuration file may
// refer to the environment and to files of the gateway. The error wraps [org.ErrNotFound] if the vault has no such
// secret.
func (a *App) orgSecret(ctx context.Context, orgID, reference string) (string, error) {
	text, err := secret.Parse(reference)
	if err != nil {
		return "", err
	}
	vault := func(ctx context.Context, name string) (secret.Value, error) { return a.vaultSecret(ctx, orgID, name) }
	resolver := secret.VaultOnly(vault)
	if a.directory.FromFile(orgID).Runtime {
		resolver = a.secrets.WithVault(vault)
	}
	value, err := resolver.Resolve(ctx, text)
	return value.Reveal(), err
}

// sessionOf returns the session of which a run is a turn, or the run itself if it is none.
func (a *App) sessionOf(ctx context.Context, orgID, runID string) string {
	if s, _, err := a.store.TurnOf(ctx, orgID, runID); err == nil {
		return s.ID
	}
	return runID
}

// missingFor says what an org has to set before calls of a built-in tool can succeed; "" = nothing.
func (b *builtins) missingFor(ctx context.Context, orgID, name string) string {
	r := b.runtime(orgID)
	switch name {
	case builtin.WebSearch:
		if s := r.Web.Search; cmp.Or(s.Provider, org.SearchExa) == org.SearchExa && s.APIKey == "" {
			if _, err := b.secret(ctx, orgID, "secret:"+agent.ExaKey); err != nil {
				return "the setting " + agent.ExaKey + ", or another provider in web.search"
			}
		}
	case builtin.CodeExecute:
		if !b.sandbox.Runs() {
			return "sandbox.drivers, which the operator sets"
		}
	case builtin.StorageRead, builtin.StorageWrite:
		if len(r.Buckets) == 0 {
			return "a bucket in buckets"
		}
	case builtin.DatabaseQuery:
		if len(r.Databases) == 0 {
			return "a database in databases"
		}
	case builtin.DatabaseWrite:
		if !slices.ContainsFunc(r.Databases, func(d org.Database) bool { return d.WriteURL != "" }) {
			return "write_url of a database in databases"
		}
	}
	return ""
}
