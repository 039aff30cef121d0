package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/route"
	"github.com/turnpike-gateway/turnpike/internal/window"
)

// checkGlob checks a model name or a glob.
func checkGlob(pattern string) error {
	if err := checkWord(pattern); err != nil {
		return err
	}
	return org.ValidPattern(pattern)
}

// checkSummaryModel checks the name of one model. "" is the default.
func checkSummaryModel(name string) error {
	switch {
	case name == "":
		return nil
	case strings.ContainsAny(name, "*?["):
		return errors.New("must be a name without *, ? and [: one model writes a summary")
	case strings.Contains(name, ","):
		return errors.New("must be one name: a list of models writes no summaries; use a route")
	}
	return checkWord(name)
}

// checkModel compares what is said of a model with the providers and with the entries before it.
func (d *decoder) checkModel(path string, all []Model, i int, providers []Provider) {
	m := all[i]
	if m.Provider != "" && !slices.ContainsFunc(providers, func(p Provider) bool { return p.Name == m.Provider }) {
		d.failPath(path+".provider", "no provider is called %s; %s", quote(m.Provider), suggestedProvider(m.Provider, providers))
	}
	if !d.has(path+".context_window") && !d.has(path+".max_input_tokens") && !d.has(path+".images") {
		d.failPath(path+".context_window", "is missing; want context_window, max_input_tokens or images")
	}
	if m.ContextWindow != nil && m.MaxInput != nil && *m.MaxInput > *m.ContextWindow {
		d.failPath(path+".max_input_tokens", "%d is above context_window (%d)", *m.MaxInput, *m.ContextWindow)
	}
	same := func(o Model) bool { return o.Model == m.Model && o.Provider == m.Provider }
	if j := slices.IndexFunc(all, same); j < i && m.Model != "" {
		d.failPath(path, "is about the same models as models[%d], which counts; remove one of them", j)
	}
}

// checkSummaryModels reports models for summaries that no provider serves.
func (d *decoder) checkSummaryModels(c *Config) {
	router := c.router()
	check := func(path, name string) {
		if name != "" && checkSummaryModel(name) == nil && len(router.Resolve(name)) == 0 {
			d.failPath(path, "%s", Unserved(name))
		}
	}
	check("compaction.model", c.Compaction.Model)
	for i, o := range c.Orgs {
		check(fmt.Sprintf("orgs[%d].runtime.compaction_model", i), o.Runtime.CompactionModel)
	}
}

// Unserved says that no provider serves a model.
func Unserved(name string) string {
	return "no provider serves the model " + quote(name) + "; name a model that requests can ask for, or add it to models of a provider"
}

// Serves returns a function that reports whether a provider of the file serves a model, or each one of a list of models.
func (c *Config) Serves() func(name string) bool { return c.router().Serves }

// router returns a router that finds models. Nothing can be called with it.
func (c *Config) router() *route.Router {
	out := make([]route.Provider, len(c.Providers))
	for i, p := range c.Providers {
		out[i] = route.Provider{Name: p.Name, Models: p.Models}
	}
	return route.New(out, c.Ordered()...)
}

// Windows returns what models of a provider take, in the order in which they count.
func (c *Config) Windows(provider string) (out []route.Window) {
	for _, m := range c.Models {
		if m.Provider != "" && m.Provider != provider {
			continue
		}
		var size window.Size
		if m.ContextWindow != nil {
			size.Window = int64(*m.ContextWindow)
		}
		if m.MaxInput != nil {
			size.Input = int64(*m.MaxInput)
		}
		size.Window = cmp.Or(size.Window, size.Input)
		out = append(out, route.Window{Model: m.Model, Size: size, Images: m.Images})
	}
	return out
}
