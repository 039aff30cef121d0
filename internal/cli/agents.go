package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"
)

// agentObject is an agent as the API shows it.
type agentObject struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	Model      string  `json:"model"`
	Version    int     `json:"version"`
	Declared   bool    `json:"declared"`
	ArchivedAt *string `json:"archived_at"`
	UpdatedAt  *string `json:"updated_at"`

	Warnings []string `json:"warnings"`
	Hooks    []struct {
		Warnings []string `json:"warnings"`
	} `json:"hooks"`
}

// warn prints the warnings of the answer to a change.
func (a agentObject) warn(out io.Writer) {
	for i, h := range a.Hooks {
		for _, w := range h.Warnings {
			a.Warnings = append(a.Warnings, fmt.Sprintf("hooks[%d]: %s", i, w))
		}
	}
	for _, w := range a.Warnings {
		fmt.Fprintf(out, "warning: agent %s: %s\n", plain(a.Name), plain(w))
	}
}

func (a agentObject) state() string {
	switch {
	case a.Declared:
		return "declared"
	case a.ArchivedAt != nil:
		return "archived"
	}
	return "stored"
}

func agentsCommand(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "agents",
		Short: "List, show, apply, remove and run agents on a running gateway",
		Long: `List, show, apply, remove and run the agents of an org over the API of a running gateway. Set
TURNPIKE_KEY to a key with the role owner or admin; list and get also work with member
and reader, and run with member.`,
		Args: cobra.NoArgs,
	}
	m := remoteCommand(cmd, p)
	cmd.AddCommand(listAgents(m), getAgent(m), applyAgents(m), removeAgents(m), runAgent(m))
	return cmd
}

// agentsPage is how many agents are asked for at once.
const agentsPage = 200

// agents returns the agents that the query selects.
func (m *remote) agents(ctx context.Context, query url.Values) (all []json.RawMessage, err error) {
	query.Set("limit", strconv.Itoa(agentsPage))
	for {
		query.Set("offset", strconv.Itoa(len(all)))
		var page struct {
			Agents []json.RawMessage
			Total  int
		}
		if err := m.call(ctx, http.MethodGet, "/api/agents?"+query.Encode(), nil, &page); err != nil {
			return nil, err
		}
		if all = append(all, page.Agents...); len(page.Agents) < agentsPage || len(all) >= page.Total {
			return all, nil
		}
	}
}

// agent returns the agent with a name, also if it is archived; an empty one if there is none.
func (m *remote) agent(ctx context.Context, name string) (a agentObject, err error) {
	found, err := m.agents(ctx, url.Values{"name": {name}, "archived": {"all"}})
	if err != nil || len(found) == 0 {
		return a, err
	}
	err = json.Unmarshal(found[0], &a)
	return a, err
}

// agentID returns the id of the agent with a name or id.
func (m *remote) agentID(ctx context.Context, name string) (string, error) {
	a, err := m.agent(ctx, name)
	if err != nil || a.ID != "" {
		return a.ID, err
	}
	return name, nil // the API knows whether it is an id
}

func agentPath(id string) string { return "/api/agents/" + url.PathEscape(id) }

func listAgents(m *remote) *cobra.Command {
	var archived, asJSON bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List the org's agents",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			query := url.Values{}
			if archived {
				query.Set("archived", "all")
			}
			all, err := m.agents(cmd.Context(), query)
			if err != nil {
				return err
			}
			if asJSON {
				return printEach(cmd, all)
			}
			t := newTable(cmd.OutOrStdout(), "NAME", "MODEL", "VERSION", "STATE", "ID")
			for _, one := range all {
				var a agentObject
				if err := json.Unmarshal(one, &a); err != nil {
					return err
				}
				t.row(a.Name, a.Model, a.Version, a.state(), a.ID)
			}
			return t.flush()
		},
	}
	cmd.Flags().BoolVar(&archived, "archived", false, "list archived agents too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line instead of a table")
	return cmd
}

func getAgent(m *remote) *cobra.Command {
	var version int
	cmd := &cobra.Command{
		Use:   "get NAME",
		Short: "Print an agent as JSON; NAME is its name or id",
		Long: `Print an agent as JSON; NAME is its name or id. "turnpike agents apply" reads what this
command prints.`,
		Example: "  turnpike agents get helper > helper.json\n  turnpike agents get helper --version 1",
		Args:    oneName,
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := m.agentID(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			path := agentPath(id)
			if cmd.Flags().Changed("version") {
				path += "/versions/" + strconv.Itoa(version)
			}
			var a json.RawMessage
			if err := m.call(cmd.Context(), http.MethodGet, path, nil, &a); err != nil {
				return err
			}
			var text bytes.Buffer
			if err := json.Indent(&text, a, "", "  "); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), escaped(text.String()))
			return err
		},
	}
	cmd.Flags().IntVar(&version, "version", 0, "print this `VERSION`")
	return cmd
}

func applyAgents(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "apply FILE",
		Short: "Create agents from a file, or change them to what it says",
		Long: `Create agents from a YAML or JSON file, or change them to what it says. The file has one
agent or a list of agents, with the members of the API: name, model, description,
system_prompt, settings, mcp_servers, tools and hooks. An agent is found by its name. What the
file does not have gets its default: apply makes the agent what the file says. The file
"-" is the standard input. A warning names each model that no provider serves, and each
matcher of a hook that matches no tool.`,
		Example: "  turnpike agents apply helper.yaml",
		Args:    oneArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			agents, err := readAgents(cmd, args[0])
			if err != nil {
				return err
			}
			for _, a := range agents {
				if err := m.applyAgent(cmd, a); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

// members are the members of an agent, by name.
type members map[string]json.RawMessage

// readAgents reads the agents of a file.
func readAgents(cmd *cobra.Command, name string) ([]members, error) {
	read := func() ([]byte, error) { return os.ReadFile(name) } //nolint:gosec // the file that the user has named
	if name == "-" {
		read = func() ([]byte, error) { return io.ReadAll(cmd.InOrStdin()) }
	}
	text, err := read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("there is no file %s; name one that exists, or - for the standard input", name)
	}
	if err != nil {
		return nil, err
	}
	object, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s is neither YAML nor JSON: %w", name, err)
	}
	var all []members
	if json.Unmarshal(object, &all) != nil {
		var one members
		if json.Unmarshal(object, &one) != nil {
			return nil, fmt.Errorf("%s must have an agent, or a list of agents", name)
		}
		all = []members{one}
	}
	for i, a := range all {
		var named string
		if json.Unmarshal(a["name"], &named) != nil || named == "" {
			return nil, fmt.Errorf("%s: agent %d has no name", name, i+1)
		}
	}
	return all, nil
}

// applyAgent makes an agent what the members say.
func (m *remote) applyAgent(cmd *cobra.Command, a members) error {
	for _, shown := range []string{"id", "version", "declared", "archived_at", "created_at", "updated_at"} { // of what get prints
		delete(a, shown)
	}
	var name string
	if err := json.Unmarshal(a["name"], &name); err != nil {
		return err
	}
	before, err := m.agent(cmd.Context(), name)
	if err != nil {
		return err
	}
	var after agentObject
	if before.ID == "" {
		if err := m.call(cmd.Context(), http.MethodPost, "/api/agents", a, &after); err != nil {
			return fmt.Errorf("agent %s: %w", name, err)
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is created\n", plain(name))
		after.warn(cmd.ErrOrStderr())
		return nil
	}
	if err := m.call(cmd.Context(), http.MethodPatch, agentPath(before.ID), withDefaults(a), &after); err != nil {
		return fmt.Errorf("agent %s: %w", name, err)
	}
	defer after.warn(cmd.ErrOrStderr())
	if after.Version == before.Version {
		fmt.Fprintf(cmd.OutOrStdout(), "%s is unchanged at version %d\n", plain(name), after.Version)
		return nil
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s is changed to version %d\n", plain(name), after.Version)
	return nil
}

// withDefaults adds null, which is the default, for all members that are not there.
func withDefaults(a members) members {
	null := json.RawMessage("null")
	all := members{"description": null, "model": null, "system_prompt": null, "mcp_servers": null, "tools": null, "hooks": null}
	maps.Copy(all, a)
	settings := members{}
	if json.Unmarshal(a["settings"], &settings) == nil && settings != nil {
		for _, name := range []string{"temperature", "max_steps", "max_tokens", "max_context_tokens", "timeout_seconds", "fallback_model", "reasoning_effort"} {
			if _, given := settings[name]; !given {
				settings[name] = null
			}
		}
		if text, err := json.Marshal(settings); err == nil {
			all["settings"] = text
		}
	} else if _, given := a["settings"]; !given {
		all["settings"] = null
	}
	return all
}

func removeAgents(m *remote) *cobra.Command {
	return &cobra.Command{
		Use:   "rm NAME…",
		Short: "Delete agents with their versions; NAME is a name or id",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || slices.ContainsFunc(args, func(name string) bool { return strings.Trim(name, ".") == "" }) {
				return errors.New("name the agents to delete: turnpike agents rm NAME")
			}
			for _, name := range args {
				id, err := m.agentID(cmd.Context(), name)
				if err != nil {
					return err
				}
				if err := m.call(cmd.Context(), http.MethodDelete, agentPath(id), nil, nil); err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s is deleted\n", plain(name))
			}
			return nil
		},
	}
}
