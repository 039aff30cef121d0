package conformance

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// rig is one gateway between its own upstream and its own recording proxy.
type rig struct {
	upstream *upstream
	proxy    *proxy
	program  *program
	gateway  string   // base URL without a path
	clients  []client // Node and Go
	node     string   // path of the node program
}

// newRig puts a gateway before server-everything.
func (s *site) newRig(t *testing.T, play script) *rig {
	t.Helper()
	return s.newRigWith(t, play, func(r *rig) []object {
		return []object{{"name": "everything", "url": r.proxy.URL + "/mcp", "enabled": true}}
	})
}

// newRigWith puts a gateway before the MCP servers that servers returns.
func (s *site) newRigWith(t *testing.T, play script, servers func(r *rig) []object) *rig {
	t.Helper()
	r := &rig{node: s.node, clients: []client{nodeClient{node: s.node, script: "chat.mjs"}, goClient{}}}
	r.upstream = startUpstream(t, play)
	r.proxy = startProxy(t, s.everything)
	r.program = s.startGateway(t, r.upstream.URL, servers(r))
	r.gateway = r.program.url
	return r
}

// ask is a question of the org default's developer.
func (r *rig) ask(model, question string, stream bool) ask {
	request := object{"model": model, "messages": []object{{"role": "user", "content": question}}}
	if stream {
		request["stream_options"] = object{"include_usage": true}
	}
	return ask{BaseURL: r.gateway + "/v1", Key: devKey, Request: request, Stream: stream}
}

// script returns the Node client that runs the named file of clients/.
func (r *rig) script(name string) client { return nodeClient{node: r.node, script: name} }

// wantToolCalls fails the test unless exactly these went to server-everything
// since the last look; want alternates tool names and arguments.
func (r *rig) wantToolCalls(t *testing.T, want ...string) {
	t.Helper()
	var wanted, got []namedArguments
	for i := 0; i < len(want); i += 2 {
		wanted = append(wanted, namedArguments{want[i], decoded(t, want[i+1])})
	}
	for _, call := range r.proxy.take() {
		got = append(got, namedArguments{call.Tool, decoded(t, string(call.Arguments))})
	}
	if diff := cmp.Diff(wanted, got); diff != "" {
		t.Errorf("tool calls at server-everything (-want +got):\n%s", diff)
	}
}

type namedArguments struct {
	Tool      string
	Arguments any
}

func decoded(t *testing.T, text string) any {
	t.Helper()
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		t.Fatalf("decoding %q: %v", text, err)
	}
	return value
}

// wantEqual fails the test unless got is want.
func wantEqual(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
