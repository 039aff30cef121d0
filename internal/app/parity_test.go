package app_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// parityRow is a bug that other gateways had in their Responses API, by its number in the list
// of such bugs, and the proof that this one does not have it.
type parityRow struct {
	number int
	bug    string
	check  func(t *testing.T)
	proof  string // the file and the name of a test elsewhere that proves it; "" = check does
}

func parityRows() []parityRow {
	const surfaces = "internal/surface/surfacetest/"
	const responses = "internal/surface/responses/"
	return []parityRow{
		{1, "a piece of text without the begin of its part", rounds(wantOpened), ""},
		{2, "a text without an end", rounds(wantWhole), ""},
		{3, "numbers of events are missing or repeated", numbersOfEvents, ""},
		{4, "the last item has no end when the provider closes early", closedEarly, ""},
		{5, "reasoning in an item of text", rounds(reasoningIsApart), ""},
		{6, "one response for each round", rounds(oneResponse), ""},
		{7, "an index for two items", rounds(wantEnded), ""},
		{8, "calls of the gateway's tools as function calls", rounds(noFunctionCalls), ""},
		{9, "the list of a server's tools is missing", rounds(oneListForEachServer), ""},
		{10, "of several lists only the last one ends", twoLists, ""},
		{11, "tools are listed for each round", listedOnce, ""},
		{12, "require_approval is ignored", requireApproval, ""},
		{13, "an approval request that is nowhere", approvalRequestIsThere, ""},
		{14, "the continuation with an approval", approvedContinuation, ""},
		{15, "an approval that is used again, or belongs to others", approvalIsUsedOnce, ""},
		{16, "a chain loses calls and their results", chainOfCalls, ""},
		{17, "a call of a chain is executed again", nothingIsExecutedAgain, ""},
		{18, "streamed responses are not stored", streamedIsStored, ""},
		{19, "instructions leak into the next response, or are lost", nil, responses + "chain_test.go TestAChainOfResponses"},
		{20, "an answer that was cut off is completed", cutOff, ""},
		{21, "a call that was cut off is completed, or executed", callCutOff, ""},
		{22, "a failure in mid-stream in another form", failureInMidStream, ""},
		{23, "a failed response without required members", nil, surfaces + "specs_test.go TestResponsesAreValidInBothDocuments"},
		{24, "usage is incomplete, or that of one round", usageIsTheSum, ""},
		{25, "parallel calls with one index are one call", callsWithOneIndex, ""},
		{26, "tool_choice is ignored", toolChoiceIsEnforced, ""},
		{27, "tools of coding agents are refused or renamed", toolsOfCodingAgents, ""},
		{28, "forms of the history are refused", formsOfTheHistory, ""},
		{29, "the format of the text is ignored", formatOfTheText, ""},
		{30, "responses of other orgs", nil, responses + "chain_test.go TestStoredResponses"},
	}
}

// Each row of the list of parity bugs is checked once, by a test here or elsewhere. // O06
func TestParity(t *testing.T) {
	noLeaks(t)
	for i, row := range parityRows() {
		if row.number != i+1 {
			t.Fatalf("row %d stands in the place of row %d", row.number, i+1)
		}
		t.Run(fmt.Sprintf("row %d: %s", row.number, row.bug), func(t *testing.T) {
			t.Parallel()
			if row.check != nil {
				row.check(t)
				return
			}
			file, name, _ := strings.Cut(row.proof, " ")
			text, err := os.ReadFile(filepath.Join("..", "..", file))
			if err != nil || !strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {") {
				t.Errorf("%s has no test %s: %v", file, name, err)
			}
		})
	}
}

// paritySite is a gateway between a scripted provider and two MCP servers: one that requests
// declare, and one of the org, which is hidden.
type paritySite struct {
	*gateway
	up           *turnpiketest.Upstream
	docs, hidden *turnpiketest.MCPServer
	model        string // a name of a model that reasons
}

// newParitySite boots a gateway whose provider is of this kind and plays the story.
func newParitySite(t *testing.T, kind, story, runtime string) *paritySite {
	t.Helper()
	docs := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "search", Result: "found"}, turnpiketest.Tool{Name: "read", Result: "a page"})
	t.Cleanup(docs.Close)
	hidden := turnpiketest.NewMCPServer(turnpiketest.MCPOptions{}, turnpiketest.Tool{Name: "customer", Result: "Ada"})
	t.Cleanup(hidden.Close)
	up := strictUpstream(t, story)
	yaml := site{upstream: strings.TrimSuffix(up.URL, "/v1"), runtime: runtime, servers: []string{server("crm", hidden.URL)}}.yaml()
	yaml, name := ofKind(yaml, kind)
	return &paritySite{MustRun(t, yaml), up, docs, hidden, name}
}

// docsTool is a tool of type mcp that declares the server docs, with more members.
func (p *paritySite) docsTool(more string) string {
	return fmt.Sprintf(`{"type":"mcp","server_label":"docs","server_url":%q%s}`, p.docs.URL, more)
}

// without an approval, tools are called at once.
const never = `,"require_approval":"never"`

// respond sends a request to the Responses API. Members are those after the model.
func (p *paritySite) respond(members string, fields ...string) answer {
	p.t.Helper()
	return p.send("POST", "/v1/responses", strings.NewReader(`{"model":"`+p.model+`",`+members+`}`), fields...)
}

// got returns a stored response.
func (p *paritySite) got(id string) answer {
	p.t.Helper()
	return p.send("GET", "/v1/responses/"+id, strings.NewReader(""))
}

// asked is the body of the latest request to the provider.
func (p *paritySite) asked() string {
	all := p.up.Requests()
	return string(all[len(all)-1].Body)
}

// refused fails the test unless the answer is a 400 for this member, before anything was asked
// or called.
func (p *paritySite) refused(a answer, param string) {
	p.t.Helper()
	e := a.fault(p.t).Error
	if a.status != 400 || e.Param == nil || *e.Param != param || e.Type != "invalid_request_error" {
		p.t.Errorf("status %d: %s; want 400 for %s", a.status, a.body, param)
	}
	if len(p.docs.Calls()) > 0 {
		p.t.Errorf("%d calls", len(p.docs.Calls()))
	}
}
