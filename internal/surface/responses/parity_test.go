package responses_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/turnpike-gateway/turnpike/internal/app/apptest"
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
	NoLeaks(t)
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
			text, err := os.ReadFile(filepath.Join("..", "..", "..", file))
			if err != nil || !strings.Contains(string(text), "\nfunc "+name+"(t *testing.T) {") {
				t.Errorf("%s has no test %s: %v", file, name, err)
			}
		})
	}
}
