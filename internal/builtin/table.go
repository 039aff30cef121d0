// Package builtin is the table of the built-in tools: their names and order, what each is for, which hosted tools of requests and which
// switches of an org offer it, and the typed results of their calls.
//
//	All ──► org, settings, agent ── which tools there are, and who may have them
//	    ──► surfaces ────────────── hosted tools, labels, typed results
//	    ──► builtin/make ────────── what makes a tool of each kind
//
// A new built-in tool is a row here and a maker in internal/builtin/make; a test there compares both.
package builtin

import "slices"

// The names of the built-in tools.
const (
	DatabaseQuery = "database_query"
	DatabaseWrite = "database_write"
	HTTPRequest   = "http_request"
	CodeExecute   = "code_execute"
	Shell         = "shell"
	StorageRead   = "storage_read"
	StorageWrite  = "storage_write"
	WebSearch     = "web_search"
	WebScrape     = "web_scrape"
)

// The types of hosted tools of requests.
const (
	HostedSearch = "web_search"
	HostedFiles  = "file_search"
	HostedCode   = "code_interpreter"
	HostedShell  = "shell"
	HostedImage  = "image_generation"
)

// HostedTypes returns the types of hosted tools that a tool of an MCP server can answer.
func HostedTypes() []string { return []string{HostedSearch, HostedFiles, HostedCode, HostedImage} }

// Kind is what a built-in tool works with. One maker makes all tools of a kind.
type Kind string

// The kinds.
const (
	Database Kind = "database"
	Code     Kind = "code" // it runs code or commands in the sandbox
	Storage  Kind = "storage"
	Web      Kind = "web"
)

// Switch is the setting of an org that offers a tool to requests; "" = none does.
type Switch string

// The switches, by the names of their settings.
const (
	EnableSearch Switch = "enable_search"
	EnableCode   Switch = "enable_code_execution"
)

// Tool is a row of the table.
type Tool struct {
	Name   string
	Kind   Kind
	Hosted string // the type of the hosted tool of requests that it answers; "" = none
	With   string // the tool that answers the hosted tool as its main one, if this one only goes with it; "" = none
	Switch Switch
	Label  string // what a call does, for a person who decides on it; "" = nothing special
	Forms  []Form // further names under which the switches offer it

	// Summary says what it does, in the list of tools that agents can have; "" = agents cannot have it.
	Summary string
}

// Form is a form in which the switches offer a tool. Its settings are those of the tool.
type Form struct {
	Name     string
	Language string // of the code that it runs; "" = it says nothing of it
	Prefixed bool   // it has a second name, which begins with MistralRSPrefix
}

// The names of the forms.
const (
	ExecutePython     = "execute_python"
	ExecuteJavaScript = "execute_javascript"
	SurfaceOutputs    = "surface_outputs"
	ListFiles         = "list_files"
	ReadFile          = "read_file"
	FetchPage         = "fetch_page"

	// MistralRSPrefix begins the names of forms as mistral.rs has them.
	MistralRSPrefix = "mistralrs_"
)

// The labels of calls.
const (
	LabelCode   = "code_execution"
	LabelShell  = "shell"
	LabelSearch = "web_search"
)

// All returns the built-in tools, in the order in which they are listed.
func All() []Tool {
	return []Tool{
		{Name: DatabaseQuery, Kind: Database, Summary: "Execute read-only SQL queries against a database of the org."},
		{Name: DatabaseWrite, Kind: Database, Summary: "Execute INSERT, UPDATE and DELETE against a database of the org."},
		{Name: HTTPRequest, Kind: Web, Summary: "Send HTTP requests to external APIs."},
		{
			Name: CodeExecute, Kind: Code, Hosted: HostedCode, Switch: EnableCode, Label: LabelCode,
			Summary: "Run Python or JavaScript in a sandbox.",
			Forms: []Form{
				{ExecutePython, "python", true}, {SurfaceOutputs, "", true}, {ExecuteJavaScript, "javascript", false},
				{ListFiles, "", false}, {ReadFile, "", false},
			},
		},
		{Name: Shell, Kind: Code, Hosted: HostedShell, Switch: EnableCode, Label: LabelShell},
		{Name: StorageRead, Kind: Storage, Summary: "List and download files of storage buckets."},
		{Name: StorageWrite, Kind: Storage, Summary: "Upload text to a storage bucket."},
		{Name: WebSearch, Kind: Web, Hosted: HostedSearch, Switch: EnableSearch, Label: LabelSearch, Summary: "Search the web."},
		{
			Name: WebScrape, Kind: Web, With: WebSearch, Switch: EnableSearch, Label: LabelSearch, Summary: "Extract the content of web pages.",
			Forms: []Form{{Name: FetchPage}},
		},
	}
}

// Find returns the row of a tool, or false. It does not find forms.
func Find(name string) (Tool, bool) {
	all := All()
	if i := slices.IndexFunc(all, func(t Tool) bool { return t.Name == name }); i >= 0 {
		return all[i], true
	}
	return Tool{}, false
}

// Names returns the names of the tools, in the order of [All].
func Names() []string { return names(func(Tool) bool { return true }) }

// OfAgents returns the names of the tools that agents can have.
func OfAgents() []string { return names(func(t Tool) bool { return t.Summary != "" }) }

// SwitchedBy returns the names of the tools that a switch offers.
func SwitchedBy(s Switch) []string { return names(func(t Tool) bool { return t.Switch == s }) }

func names(selects func(Tool) bool) (names []string) {
	for _, t := range All() {
		if selects(t) {
			names = append(names, t.Name)
		}
	}
	return names
}
