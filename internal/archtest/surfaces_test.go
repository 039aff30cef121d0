package archtest

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/turnpike-gateway/turnpike/internal/provider/demo"
)

const loopPackage = modulePath + "/internal/loop"

// ofTheLoop are the names of internal/loop that surfaces for model requests use. They are
// settings: a surface names its defaults, says which tools the
// client wants to see as which hosted tools and with which options, and names the provider in an error.
func ofTheLoop() []string {
	return []string{"Parallel", "Safe", "HostedTool", "HostedTool.Type", "HostedTool.Server", "HostedTool.Tool", "HostedTool.Options", "Target.Provider"}
}

// A surface translates. It reads no state of a run, no fact and no action, and asks the loop for
// no decision. // A04 G15
func TestSurfacesTakeNothingButSettingsFromTheLoop(t *testing.T) {
	found := map[string]bool{}
	surfaces := named(t, []string{"internal/surface/chat", "internal/surface/responses"})
	for _, p := range surfaces {
		load := newLoader(t, "./internal/surface/...")
		info := load.check(t, p)
		for id, object := range info.Uses {
			if object.Pkg() == nil || object.Pkg().Path() != loopPackage {
				continue
			}
			name := nameInLoop(object)
			found[name] = true
			if !slices.Contains(ofTheLoop(), name) {
				t.Errorf("%s: loop.%s in a surface: what is to be done is decided by the loop, and reported by events", load.set.Position(id.Pos()), name)
			}
		}
	}
	for _, name := range ofTheLoop() {
		if !found[name] {
			t.Errorf("loop.%s is listed in surfaces_test.go and not used: remove it", name)
		}
	}
}

// nameInLoop is the name of an object of internal/loop; a field or a method has that of its type
// in front.
func nameInLoop(object types.Object) string {
	scope := object.Pkg().Scope()
	if scope.Lookup(object.Name()) == object {
		return object.Name()
	}
	for _, of := range scope.Names() {
		structure, ok := scope.Lookup(of).Type().Underlying().(*types.Struct)
		for i := 0; ok && i < structure.NumFields(); i++ {
			if structure.Field(i) == object {
				return of + "." + object.Name()
			}
		}
	}
	return "(method) " + object.Name()
}

// aboutTheAnswer are functions that differ between the APIs. They say what is stored of a run, and
// how it is named. None decides what the loop does.
func aboutTheAnswer() map[string]string {
	const notStored = "the texts of a response with store: false are not stored"
	return map[string]string{
		"internal/conversation.SegmentID": "the id of a response is made of that of its run",
		"internal/run.withoutBodies":      notStored,
		"internal/journal.Row.JSON":       notStored,
		"internal/loop.WithoutTexts":      notStored,
	}
}

// The same question runs the same code of the loop, block by block, and the same functions of the
// driver, whichever API it comes from. // A04
func wantSameLoop(t *testing.T, asChat, asResponses map[string]string) {
	t.Helper()
	differ := map[string]bool{}
	for _, only := range []struct {
		name        string
		ran, others map[string]string
	}{{"chat", asChat, asResponses}, {"Responses", asResponses, asChat}} {
		for place, function := range only.ran {
			if only.others[place] != "" {
				continue
			}
			if differ[function] = true; aboutTheAnswer()[function] == "" {
				t.Errorf("only %s runs %s, in %s: does an API decide what the loop does?", only.name, place, function)
			}
		}
	}
	for function := range aboutTheAnswer() {
		if !differ[function] {
			t.Errorf("%s is listed in surfaces_test.go, and both APIs run the same of it: remove it", function)
		}
	}
	for _, place := range []string{"internal/run.Runner.Run", "internal/run.modelCaller.unsendable"} {
		if asChat[place] == "" {
			t.Errorf("%s did not run: has it another name?", place)
		}
	}
	if len(asChat) < 200 {
		t.Errorf("%d places ran", len(asChat))
	}
}

// ofTheRun are the blocks of the loop and the functions of the driver that ran for a request,
// each with its function.
func ofTheRun(t *testing.T, ran, idle map[string]bool) map[string]string {
	t.Helper()
	places := map[string]string{}
	for block := range ran {
		switch name := file(block); {
		case idle[block]:
		case name == "internal/run/keeper.go": // keeps leases: what runs of it depends on the time
		case strings.HasPrefix(name, "internal/loop/"):
			places[inModule(block)] = functionAt(t, block)
		case strings.HasPrefix(name, "internal/run/"), strings.HasPrefix(name, "internal/conversation/"), strings.HasPrefix(name, "internal/journal/"):
			function := functionAt(t, block)
			places[function] = function
		}
	}
	return places
}

// respondWithTools asks the question of askWithTools over the Responses API.
func respondWithTools(t *testing.T, baseURL string) {
	t.Helper()
	body := fmt.Sprintf(`{"model":"demo","stream":true,"store":false,"input":%q}`, demo.Question)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, baseURL+"/v1/responses", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+coveredKey)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"75.2", "event: response.completed", "data: [DONE]"} {
		if !strings.Contains(string(answer), want) {
			t.Fatalf("the answer has no %s in it:\n%s", want, answer)
		}
	}
}

// functionAt returns the function of a block, which is path:line.column,line.column.
func functionAt(t *testing.T, block string) string {
	t.Helper()
	_, from, _ := strings.Cut(block, ":")
	var line int
	if _, err := fmt.Sscanf(from, "%d.", &line); err != nil {
		t.Fatalf("block %s: %v", block, err)
	}
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, filepath.Join(moduleRoot(t), file(block)), nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, decl := range parsed.Decls {
		f, ok := decl.(*ast.FuncDecl)
		if !ok || set.Position(f.Pos()).Line > line || set.Position(f.End()).Line < line {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			name = strings.TrimPrefix(types.ExprString(f.Recv.List[0].Type), "*") + "." + name
		}
		return filepath.ToSlash(filepath.Dir(file(block))) + "." + name
	}
	return block
}
