package archtest

import (
	"slices"
	"strings"
	"testing"
)

// layer is one line of the design's table of packages. A package may import
// those of the lines above its own, and none of its own line.
type layer struct {
	name     string
	why      string // said to whoever breaks it
	packages []string
}

// layers is the table, from the ground up. A pattern that ends in /... stands
// for a directory and everything below it.
func layers() []layer {
	vocabulary := "the public vocabulary is data that everybody speaks; it knows nothing of the gateway"
	return []layer{
		{"ground", "amounts of money are exact decimals wherever they are read, in the vocabulary, too", []string{"internal/decimal"}},

		{"vocabulary", vocabulary, []string{"item"}},
		{"vocabulary", vocabulary, []string{"tool"}},
		{"vocabulary", vocabulary, []string{"model"}},
		{"vocabulary", vocabulary, []string{"event"}},

		{"ground", "requests that are forwarded unchanged have one form, for surfaces, the driver and providers", []string{"internal/relay"}},
		{"ground", "which built-in tools there are, and what their calls return, is said once", []string{"internal/builtin"}},
		{"ground", "identifiers are used by every package that names something", []string{"internal/id"}},
		{"ground", "JSON is read in place by every package that must keep its bytes", []string{"internal/jsonscan"}},
		{"ground", "what is managed is recorded without its secrets", []string{"internal/audit", "internal/secret"}},
		{"ground", "the ground serves everybody above it and depends on none of them",
			[]string{"internal/clock", "internal/crash", "internal/egress", "internal/fault", "internal/header", "internal/org", "internal/schema", "internal/spelling", "internal/sse", "internal/visible"}},

		{"ground", "webhooks are signed and sent alike, whatever they tell of", []string{"internal/webhook"}},

		{"ground", "what was taken of a limit is kept for whoever lets requests in, by what an org says of its limits", []string{"internal/ratelimit"}},

		{"ground", "whether this process may answer, and its share of a limit, is asked wherever requests come in", []string{"internal/replica"}},

		{"ground", "what callers make the gateway retain is charged wherever it is read, and a refusal says so to the caller", []string{"internal/memlimit"}},
		{"ground", "request bodies that are too large for memory lie in files, whoever reads them", []string{"internal/spool"}},

		{"ground", "what strangers have made is read in child processes, which are started and limited alike", []string{"internal/childproc"}},
		{"ground", "files of orgs are kept in buckets of several kinds, which have one port", []string{"internal/blob"}},
		{"ground", "files of keys have ids, whichever part of the gateway stores or reads them; their content is in a bucket", []string{"internal/file"}},

		{"ground", "files in the database are cut into chunks alike, whichever store keeps these", []string{"internal/blob/database"}},
		{"ground", "what exists once per installation is decided without a store, which keeps it", []string{"internal/installation"}},

		{"rules", "what a call costs follows from its usage and its price alone, and budgets are made of it", []string{"internal/money"}},
		{"rules", "the rules are plain data in, verdict out", []string{"internal/budget", "internal/policy", "internal/window"}},
		{"the loop", "the loop is decided from facts, by the rules and nothing else", []string{"internal/loop"}},
		{"the loop", "the settings of a run are one policy of the loop, resolved from what is plain data", []string{"internal/settings"}},

		{"record", "what is stored of runs, and the rules of every store: stores import it and nothing of the driver", []string{"internal/journal"}},
		{"record", "definitions of agents, and their rules; it runs none", []string{"internal/agent"}},
		{"record", "the events of a run are made from what is stored, and the driver adds to it; it never asks the driver", []string{"internal/eventlog"}},
		{"record", "what is stored of conversations belongs to no API: surfaces name it, and the driver adds to it", []string{"internal/conversation"}},

		{"driver", "the driver makes the moves and owns its ports; adapters import it, never the reverse", []string{"internal/catalog"}},
		{"driver", "who sends a request is known before there is a run, and by those that manage things, too", []string{"internal/caller"}},
		{"driver", "the driver makes the moves and owns its ports; adapters import it, never the reverse", []string{"internal/toolexec"}},
		{"driver", "which targets serve a model is known before a run begins: the driver tries them in the order that it gets", []string{"internal/route"}},
		{"driver", "the cost of calls is reserved before they leave, for runs and relays alike", []string{"internal/spend"}},
		{"driver", "the driver makes the moves and owns its ports; adapters import it, never the reverse", []string{"internal/run"}},
		{"driver", "what a store returns is not believed, so that the cache knows no store", []string{"internal/toolcache"}},

		{"provider kit", "every adapter of an HTTP provider sends and reads with it, and it knows no dialect", []string{"internal/provider/wire"}},
		{"provider kit", "what Claude models take is the same over every API that reaches them", []string{"internal/provider/claude"}},

		{"surface kit", "what every surface does is done once, and the kit knows no surface", []string{"internal/surface"}},

		{"test kits", "a story is read alike by the scripted model and the fake provider", []string{"internal/script"}},
		{"test kits", "fakes are for the tests of every adapter, so they know none", []string{"turnpiketest"}},
		{"test kits", "fakes are for the tests of every adapter, so they know none", []string{"internal/upstreamtest"}},
		{"test kits", "suites are for the tests of every adapter, so they know none", []string{
			"internal/provider/providertest", "internal/store/storetest", "internal/blob/blobtest", "internal/coord/coordtest"}},
		{"test kits", "the specifications are beside the recordings", []string{"internal/surface/spectest"}},
		{"sandbox", "code runs alike whichever tool asks for it, and what confines it knows no tool", []string{"internal/sandbox"}},
		{"sandbox", "interpreters are in child processes: nothing but the program reaches them", []string{"internal/sandbox/child"}},
		{"test kits", "test programs are their own children, as the gateway is", []string{"internal/sandbox/sandboxtest"}},
		{"sandbox", "PDFs of strangers are read in child processes, no matter which package asks", []string{"internal/pdf"}},
		{"sandbox", "the library for PDFs is in child processes: nothing but the program reaches it", []string{"internal/pdf/child"}},
		{"store kit", "what stores do with SQL is done once; what an engine needs beside it lies above",
			[]string{"internal/store/database"}},
		{"adapters", "each adapter speaks to one part of the outside world; two that know each other cannot be changed alone", []string{
			"internal/provider/...", "internal/mcptool", "internal/mcpserver", "internal/outbox", "internal/resulttool", "internal/httptool", "internal/codetool", "internal/webtool", "internal/sqltool", "internal/storagetool", "internal/blob/disk", "internal/blob/s3", "internal/hook", "internal/knowledge", "internal/delegate",
			"internal/store/...", "internal/coord/...", "internal/telemetry", "internal/analytics", "internal/surface/..."}},
		{"copies", "a copy knows both stores, and the files beside them", []string{"internal/storecopy"}},
		{"library", "a store is checked by the compiler, and used by agents alone", []string{"internal/ledger"}},
		{"library", "a source that connects is checked by the compiler, and used by agents alone", []string{"internal/connect"}},
		{"library", "the built-in prices are data", []string{"internal/rates/known"}},
		{"library", "a program links what it uses: each provider, the MCP client and each store are in a package of their own",
			[]string{"mcp", "provider/...", "resource"}},
		{"library", "an agent drives runs as a surface does, and knows neither servers nor stores on disk", []string{"."}},
		{"library", "a store has what agents keep in it, and no agent links one that it does not use", []string{"sqlite"}},
		{"test kits", "a crash, and a recorded run, is that of a whole agent", []string{"turnpiketest/crashtest", "turnpiketest/replaytest"}},
		{"test kits", "the stories are told by all surfaces", []string{"internal/surface/surfacetest"}},

		{"edges", "the edges are what the composition root puts together", []string{"internal/config", "internal/httpd"}},
		{"edges", "the rate card is read like the rest of the configuration", []string{"internal/rates"}},
		{"orgs", "the clients of MCP servers know which server, and not what else an org has", []string{"internal/mcppool"}},
		{"orgs", "what an org has is the same for every surface and every run", []string{"internal/directory"}},
		{"built-in tools", "built-in tools are made of adapters, which know nothing of each other", []string{"internal/builtin/make"}},
		{"composition root", "one function builds every part; only the commands use the whole", []string{"internal/app"}},
		{"commands", "nobody but a program runs a command", []string{"internal/cli"}},
		{"programs", "nobody imports a program", []string{"gateway", "cmd/..."}},
	}
}

// outside are packages that are no part of the gateway.
func outside() []string {
	return []string{
		"bench/...", "docs", "internal/app/apptest",
		"internal/archtest", "internal/mutation", "internal/ramdir", "internal/release", "internal/soak",
		"internal/store/database/sqlitetest", "internal/store/postgres/postgrestest",
	}
}

func TestEveryPackageImportsOnlyWhatLiesBelowIt(t *testing.T) {
	for _, p := range listPackages(t) {
		if len(p.GoFiles) == 0 || matches(outside(), p.name()) {
			continue
		}
		own := layerOf(p.name())
		if own < 0 {
			t.Errorf("package %s has no place in the table of packages: give it one in layers_test.go", p.name())
			continue
		}
		for _, path := range p.Imports {
			if isOurs(path) {
				checkImport(t, p.name(), inModule(path), own)
			}
		}
	}
}

// What an org has is the same for every surface, so that its packages know none.
func TestOrgsKnowNoSurface(t *testing.T) {
	for _, p := range named(t, []string{"internal/directory", "internal/mcppool"}) {
		for _, path := range p.Imports {
			if isOurs(path) && strings.HasPrefix(inModule(path), "internal/surface") {
				t.Errorf("%s imports %s: what both need belongs in internal/org", p.name(), inModule(path))
			}
		}
	}
}

// Stores keep what internal/journal says, and know nothing of what performs runs.
func TestStoresKnowTheJournalOnly(t *testing.T) {
	for _, p := range named(t, []string{
		"internal/store/memory", "internal/store/database", "internal/store/postgres", "internal/store/storetest",
	}) {
		for _, path := range p.Imports {
			if isOurs(path) && (inModule(path) == "internal/run" || inModule(path) == "internal/eventlog") {
				t.Errorf("%s imports %s: what stores implement belongs in internal/journal", p.name(), inModule(path))
			}
		}
	}
}

// Other modules import the vocabulary to write models and tools. A program that
// only names an item must not link an HTTP client and server with it.
func TestTheVocabularyDoesNotImportHTTP(t *testing.T) {
	for _, p := range goList(t, "-deps", "./item", "./tool", "./model", "./event") {
		text := p.ImportPath == "net/url" || p.ImportPath == "net/netip" // of the package that makes schemas of Go types: they connect to nothing
		if p.Standard && !text && (p.ImportPath == "net" || strings.HasPrefix(p.ImportPath, "net/")) {
			t.Errorf("item, tool, model or event imports %s, directly or through another package: public data packages link no network code; "+
				"use a plain type, such as map[string][]string for a header", p.ImportPath)
		}
	}
}

// keptByTheKit are packages that only the kit of the surfaces uses: what they do for one
// surface they must do for all.
func keptByTheKit() map[string]string {
	return map[string]string{
		"internal/route":    "who serves a model is found by surface.Handler",
		"internal/catalog":  "which tools a run has is said by surface.Handler.Tools",
		"internal/jsonscan": "bodies are read by surface.Scan and checked by surface.CheckJSON",
		"internal/budget":   "the settings of a run are resolved by settings.Resolve",
		"internal/memlimit": "bodies and texts are charged by the kit",
		"internal/sse":      "streams are written by surface.Stream",
		"net/netip":         "what a blocked address is told as is decided in surface/failure.go",
		"crypto/sha256":     "the hash of a request with a key is computed in surface/key.go",
	}
}

// A surface for model requests is a decoder, an encoder and its tables. It does nothing
// that the next surface would have to copy.
func TestASurfaceForModelRequestsLeavesToTheKitWhatEverySurfaceDoes(t *testing.T) {
	found := 0
	for _, p := range listPackages(t) {
		if !strings.HasPrefix(p.name(), "internal/surface/") || !slices.Contains(p.Imports, "github.com/turnpike-gateway/turnpike/item") {
			continue // it makes no model requests
		}
		found++
		for _, path := range p.Imports {
			if isOurs(path) {
				path = inModule(path)
			}
			if why := keptByTheKit()[path]; why != "" {
				t.Errorf("%s imports %s: %s", p.name(), path, why)
			}
		}
	}
	if found == 0 {
		t.Error("no surface for model requests was found")
	}
}

func checkImport(t *testing.T, importer, imported string, own int) {
	t.Helper()
	l := layers()[own]
	switch theirs := layerOf(imported); {
	case matches(outside(), imported):
		t.Errorf("%s imports %s, which is no part of the gateway", importer, imported)
	case theirs == own:
		t.Errorf("%s imports %s, its neighbour among the %s: %s", importer, imported, l.name, l.why)
	case theirs > own:
		t.Errorf("%s (%s) imports %s (%s), which lies above it: %s", importer, l.name, imported, layers()[theirs].name, l.why)
	}
}

// layerOf returns the line of a package, the one that names it before the one
// that has a pattern for it; -1 for none.
func layerOf(name string) int {
	exact := slices.IndexFunc(layers(), func(l layer) bool { return slices.Contains(l.packages, name) })
	if exact >= 0 {
		return exact
	}
	return slices.IndexFunc(layers(), func(l layer) bool { return matches(l.packages, name) })
}

func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		dir, below := strings.CutSuffix(pattern, "/...")
		return name == dir || below && strings.HasPrefix(name, dir+"/")
	})
}
