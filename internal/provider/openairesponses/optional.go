package openairesponses

import (
	"errors"
	"net/http"
	"strings"
	"sync"

	"github.com/turnpike-gateway/turnpike/internal/jsonscan"
	"github.com/turnpike-gateway/turnpike/model"
)

// optional names the members that the gateway adds to a request by itself and
// that some models refuse with a 400: a model that does not reason has no
// encrypted reasoning, and OpenAI gives summaries to verified organizations only.
type optional struct {
	include bool // include: ["reasoning.encrypted_content"]
	summary bool // reasoning.summary
}

// and adds the member that an error is about.
func (o optional) and(err error) optional {
	var e *model.Error
	if !errors.As(err, &e) || e.Status != http.StatusBadRequest && e.Status != http.StatusUnprocessableEntity || !jsonscan.Valid(e.Body) {
		return o
	}
	said := jsonscan.Member(jsonscan.TrimSpace(e.Body), "error")
	param := jsonscan.Text(jsonscan.Member(said, "param"))
	switch {
	case param == "include", strings.HasPrefix(param, "include["), strings.Contains(e.Message, "reasoning.encrypted_content"):
		o.include = true
	case param == "reasoning.summary":
		o.summary = true
	}
	return o
}

// maxUnsupported is how many models are remembered. One more, and all are forgotten.
const maxUnsupported = 256

// unsupported remembers what each model refuses until the process ends, so that
// only the first request to a model is sent more than once.
type unsupported struct {
	mu     sync.Mutex
	models map[string]optional // by the provider's name of the model
}

// of returns what must be left out of requests to a model.
func (u *unsupported) of(name string) optional {
	u.mu.Lock()
	o, ok := u.models[name]
	u.mu.Unlock()
	if !ok {
		o.include = !reasons(name)
	}
	return o
}

func (u *unsupported) add(name string, o optional) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.models == nil || len(u.models) >= maxUnsupported {
		u.models = map[string]optional{}
	}
	u.models[name] = o
}

// reasons reports whether a model may reason. OpenAI's models before its o-series
// and its chat models do not; every name that is not known may.
func reasons(name string) bool {
	name = strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
	for _, family := range [...]string{"gpt-3.5", "gpt-35", "gpt-4", "chatgpt-", "gpt-5-chat"} {
		if strings.HasPrefix(name, family) {
			return false
		}
	}
	return true
}
