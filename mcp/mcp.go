// Package mcp makes the tools of MCP servers tools of an agent:
//
//	docs := mcp.Server("https://docs.example.com/mcp").Header("Authorization", "Bearer "+token)
//	defer docs.Close()
//	files := mcp.Command("mcp-files", "--root", "/srv")
//	defer files.Close()
//	agent := &turnpike.Agent{Model: model, Sources: []tool.Source{docs, files}}
//
// A server is connected when a run needs its tools. Its address must be public, unless Agent.Outbound
// allows it. A call is made at most once, unless the source says that its tools may be repeated.
package mcp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/connect"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/mcptool"
	"github.com/turnpike-gateway/turnpike/tool"
)

var _ connect.Source = (*Source)(nil)

// Source is an MCP server as a source of tools. Its methods that return a Source change it and return it;
// they must not be called once an agent uses it. Close it after the last run.
type Source struct {
	server   mcptool.Server
	name     string
	required bool
	header   http.Header
	env      map[string]string

	mu      sync.Mutex
	clients []*mcptool.Client
	direct  *mcptool.Client // for List; nil = not made yet
	closed  bool
}

// Server returns the MCP server at a URL, over streamable HTTP or SSE.
func Server(address string) *Source {
	s := &Source{server: mcptool.Server{URL: address}, header: http.Header{}}
	if u, err := url.Parse(address); err == nil {
		s.name = u.Hostname()
	}
	return s
}

// Command returns the MCP server that a program is, over its input and output. It is started when a run
// needs it, with the rights of this process. A program that cannot be found is an error of the first run.
func Command(path string, args ...string) *Source {
	return &Source{server: mcptool.Server{Command: append([]string{path}, args...)}, name: filepath.Base(path), env: map[string]string{}}
}

// Named sets the name of the source, for errors and for the model's catalogue; it is the host or the
// program otherwise. The sources of an agent have different names.
func (s *Source) Named(name string) *Source {
	s.name = name
	return s
}

// Header sends a header with each request to the server.
func (s *Source) Header(name, value string) *Source {
	if s.header == nil {
		s.header = http.Header{}
	}
	s.header.Set(name, value)
	return s
}

// Env sets a variable of the environment of the program. It has no others but PATH, HOME, TMPDIR and LANG.
func (s *Source) Env(name, value string) *Source {
	if s.env == nil {
		s.env = map[string]string{}
	}
	s.env[name] = value
	return s
}

// Required makes a run fail if the server is not available. Otherwise the run goes on without its tools.
func (s *Source) Required() *Source {
	s.required = true
	return s
}

// Trusted believes what the server says about its tools: one with readOnlyHint may be called again.
func (s *Source) Trusted() *Source {
	s.server.Trust = true
	return s
}

// Reads says that these tools only read, whatever the server says: they may be called again.
func (s *Source) Reads(tools ...string) *Source {
	s.server.Reads = append(s.server.Reads, tools...)
	return s
}

// Keyed says that the server executes these tools at most once for each idempotency key, which is in the
// member turnpike/idempotencyKey of _meta: they may be called again.
func (s *Source) Keyed(tools ...string) *Source {
	s.server.Keyed = append(s.server.Keyed, tools...)
	return s
}

// Timeout limits each list and each call; 0 = 30 s.
func (s *Source) Timeout(d time.Duration) *Source {
	s.server.Timeout = d
	return s
}

// Name returns the name of the source.
func (s *Source) Name() string { return s.name }

// Connect returns the server for one agent. Other packages have no use for it: agents call it. Close ends what it has returned.
func (s *Source) Connect(a connect.Agent) (connect.Server, error) {
	client, err := s.connect(a)
	if err != nil {
		return connect.Server{}, fmt.Errorf("the MCP server %s %w", s.name, err)
	}
	return connect.Server{Source: client, Required: s.required}, nil
}

func (s *Source) connect(a connect.Agent) (*mcptool.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	server := s.server
	server.Name, server.OnListChanged = s.name, a.Changed
	switch {
	case server.URL == "" && len(s.header) > 0:
		return nil, errors.New("is a program, and has no headers")
	case server.URL != "" && len(s.env) > 0:
		return nil, errors.New("is no program, and has no environment")
	case s.closed:
		return nil, errors.New("was closed")
	}
	if len(server.Command) > 0 {
		if _, err := exec.LookPath(server.Command[0]); err != nil {
			return nil, fmt.Errorf("cannot be started: %w", err)
		}
	}
	if len(s.header) > 0 {
		header := s.header.Clone()
		server.Headers = func(context.Context) (http.Header, error) { return header, nil }
	}
	if len(s.env) > 0 {
		env := maps.Clone(s.env)
		server.Env = func(context.Context) (map[string]string, error) { return env, nil }
	}
	c := mcptool.New(server, a.Client, a.Log)
	s.clients = append(s.clients, c)
	return c, nil
}

// List implements [tool.Source] for use without an agent. The address must be public: of another one, an agent whose Outbound allows it
// lists the tools.
func (s *Source) List(ctx context.Context) ([]tool.Tool, error) {
	s.mu.Lock()
	direct := s.direct
	s.mu.Unlock()
	if direct == nil {
		out := egress.New(egress.DefaultPolicy(), egress.Options{})
		client, err := s.connect(connect.Agent{Client: out.Guarded(egress.GuardedOptions{})})
		if err != nil {
			return nil, fmt.Errorf("the MCP server %s %w", s.name, err)
		}
		s.mu.Lock()
		s.direct = cmp.Or(s.direct, client)
		direct = s.direct
		s.mu.Unlock()
	}
	return direct.List(ctx)
}

// Close ends the connections and the programs of the source. Later calls of its tools fail. It may be
// called more than once.
func (s *Source) Close() error {
	s.mu.Lock()
	s.closed = true
	clients := slices.Clone(s.clients)
	s.clients, s.direct = nil, nil
	s.mu.Unlock()
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() { _ = c.Close() })
	}
	all.Wait()
	return nil
}
