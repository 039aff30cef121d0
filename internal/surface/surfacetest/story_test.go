package surfacetest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-gateway/turnpike/internal/catalog"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// story is one file of testdata.
type story struct {
	archive
	path string

	runtime   org.Runtime
	cap       int
	role      org.Role
	servers   []server
	leave     time.Duration // 0 = the client stays
	unplug    int           // 0 = the connection lasts
	principal string        // of the second request
	differ    string        // why stream and JSON end differently
	open      string        // what is still wrong: the goldens are what should come
	only      string        // the API on which alone it is played; "" = all
	race      string        // a data race of the gateway that the story meets
}

// server is a tool source of the story's org.
type server struct {
	catalog.Server
	fails error // of discovery
	tools []turnpiketest.Tool
}

// readStories reads all files of testdata, by name.
func readStories() ([]*story, error) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		return nil, err
	}
	var stories []*story
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		s, err := parse(path, string(data))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		stories = append(stories, s)
	}
	return stories, nil
}

// name is the story's first line.
func (s *story) name() string {
	line, _, _ := strings.Cut(s.comment, "\n")
	return strings.TrimSuffix(line, ".")
}

func parse(path, data string) (*story, error) {
	s := &story{archive: parseArchive(data), path: path, cap: 50, role: org.Member, principal: "alice"}
	if s.name() == "" || !s.has("model") {
		return nil, errors.New("a story has a sentence and a model")
	}
	for line := range strings.Lines(s.get("state")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if err := s.set(key, value); err != nil {
			return nil, fmt.Errorf("state %s: %w", key, err)
		}
	}
	for line := range strings.Lines(s.get("tools")) {
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := s.addTool(strings.TrimRight(line, "\n")); err != nil {
			return nil, fmt.Errorf("tools: %q: %w", line, err)
		}
	}
	if len(s.servers) == 0 {
		s.server("tools") // without one there is no loop
	}
	return s, nil
}

// set takes one line of the state.
func (s *story) set(key, value string) error {
	rt := &s.runtime
	var err error
	switch key {
	case "":
	case "max_rounds":
		rt.MaxRounds, err = number(value)
	case "max_calls":
		rt.MaxCalls, err = number(value)
	case "tool_result_max_bytes":
		rt.ToolResultMaxBytes, err = number(value)
	case "deadline":
		rt.Deadline, err = time.ParseDuration(value)
	case "stream_mode":
		rt.StreamMode = org.StreamMode(value)
	case "tool_parallelism":
		rt.ToolParallelism = value
	case "tool_arg_validation":
		rt.ToolArgValidation = value
	case "tool_error_mode":
		rt.ToolErrorMode = value
	case "on_limit":
		rt.OnLimit = value
	case "doom_loop":
		rt.DoomLoop = value
	case "doom_threshold":
		rt.DoomThreshold, err = strconv.Atoi(value)
	case "extensions":
		rt.Extensions = strings.Split(value, ",")
	case "enable_search":
		rt.EnableSearch = true
	case "enable_code_execution":
		rt.EnableCode = true
	case "max_tool_rounds":
		rt.MaxToolRounds, err = number(value)
	case "max_rounds_cap":
		s.cap, err = strconv.Atoi(value)
	case "role":
		s.role = org.Role(value)
	case "server":
		err = s.setServer(strings.Fields(value))
	case "leave":
		s.leave, err = time.ParseDuration(value)
	case "unplug":
		s.unplug, err = strconv.Atoi(value)
	case "second_principal":
		s.principal = value
	case "differ":
		s.differ = value
	case "open":
		s.open = value
	case "only":
		s.only = value
	case "race":
		s.race = value
	default:
		return errors.New("unknown key")
	}
	return err
}

func number(value string) (*int, error) {
	n, err := strconv.Atoi(value)
	return &n, err
}

// server returns the server of that name, which it makes if it must.
func (s *story) server(name string) *server {
	i := slices.IndexFunc(s.servers, func(v server) bool { return v.Name == name })
	if i < 0 {
		i = len(s.servers)
		s.servers = append(s.servers, server{Server: catalog.Server{Name: name}})
	}
	return &s.servers[i]
}

func (s *story) setServer(fields []string) error {
	if len(fields) == 0 {
		return errors.New("no name")
	}
	v := s.server(fields[0])
	for _, f := range fields[1:] {
		word, value, _ := strings.Cut(f, "=")
		switch word {
		case "down":
			v.fails = errors.New("connection refused")
		case "blocked":
			v.fails = blocked{value, "10.0.0.7"}
		case "required":
			v.Required = true
		case "naming":
			v.Naming = catalog.Naming(value)
		case "prefix":
			v.Prefix = value
		case "tools":
			v.Tools = strings.Split(value, ",")
		case "polling":
			v.Polling = strings.Split(value, ",")
		default:
			return fmt.Errorf("unknown word %q", f)
		}
	}
	return nil
}
