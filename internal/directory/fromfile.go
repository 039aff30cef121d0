package directory

import (
	"cmp"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/egress"
	"github.com/turnpike-gateway/turnpike/internal/fault"
	"github.com/turnpike-gateway/turnpike/internal/org"
	"github.com/turnpike-gateway/turnpike/internal/secret"
)

// FromFile turns the orgs of the file into what the directory works with.
func FromFile(c *config.Config, keys *config.Secrets) org.File {
	out := map[string]org.FromFile{}
	for i, o := range c.Orgs {
		path := fmt.Sprintf("orgs[%d]", i)
		d := org.FromFile{
			Org:     c.Given(path + ".id"),
			Runtime: c.Given(path + ".runtime"),
			Record:  org.Record{ID: o.ID, Features: o.Features, Runtime: o.Runtime},
		}
		d.Record.Runtime.Databases = slices.Clone(o.Runtime.Databases)
		for i := range d.Record.Runtime.Databases {
			d.Record.Runtime.Databases[i].FromFile = true
		}
		for _, k := range o.Keys {
			value := keys.Keys[o.ID][k.Name].Reveal()
			d.Keys = append(d.Keys, org.Key{
				Org: o.ID, ID: k.Name, Name: k.Name, Role: k.Role, Hash: sha256.Sum256([]byte(value)), Hint: "declared", Rate: k.Rate,
				Access: k.Access, ExpiresAt: k.ExpiresAt,
			})
		}
		d.Servers = slices.Clone(o.MCPServers)
		for i := range d.Servers {
			d.Servers[i].Org, d.Servers[i].FromFile = o.ID, true
		}
		d.HTTPTools = slices.Clone(o.HTTPTools)
		for i := range d.HTTPTools {
			d.HTTPTools[i].Org = o.ID
		}
		for _, w := range o.Webhooks {
			d.Webhooks = append(d.Webhooks, fileWebhook(o.ID, w, keys.Webhooks[o.ID][w.Name]))
		}
		out[o.ID] = d
	}
	return org.File{Orgs: out, Shared: c.MCPServers}
}

func fileWebhook(orgID string, w config.Webhook, s config.WebhookSecrets) org.FileWebhook {
	out := org.FileWebhook{Webhook: org.Webhook{Org: orgID, Name: w.Name, URL: w.URL, Events: w.Events}}
	if !w.Enabled {
		out.Stopped = org.StoppedByOrg
	}
	for _, v := range []secret.Value{s.Current, s.Previous} {
		if !v.IsZero() {
			out.Secrets = append(out.Secrets, v)
		}
	}
	return out
}

// Reader implements admin.Reader with the rules of the configuration file, and
// the limits of those who are not its operator.
type Reader struct {
	RoundsCap func() int // max_rounds_cap; 0 = not set
	Vault     bool       // there is one to refer to
	RunsCode  bool       // there is a sandbox
	Storage   config.Storage

	// Serves reports whether a provider serves the model now. Nil = it is not asked.
	Serves func(model string) bool
}

// MCPServer implements admin.Reader.
func (r Reader) MCPServer(json []byte, patched bool) (org.MCPServer, error) {
	s, err := config.Part{Name: "body", Data: json, Patched: patched}.MCPServer()
	if err != nil {
		return org.MCPServer{}, refusal(fault.Unprocessable, err)
	}
	if err := r.checkHeaders(s.Headers); err != nil {
		return org.MCPServer{}, err
	}
	return s, nil
}

// checkHeaders refuses references that only the operator may have.
func (r Reader) checkHeaders(headers map[string]string) error {
	for name, text := range headers {
		t, err := secret.Parse(text)
		switch kind := t.Ref().Kind(); {
		case err != nil || t.Ref() == "": // without a reference
		case kind != secret.Vault:
			return fault.New(fault.Unprocessable, "invalid_value", "a header cannot refer to the gateway's environment or files; store the value with PUT /api/secrets/NAME and refer to it with secret:NAME").In("headers." + name)
		case !r.Vault:
			return fault.New(fault.Unprocessable, "vault_off", "%s: %v", t.Ref(), secret.ErrNoVault).In("headers." + name)
		}
	}
	return nil
}

// HTTPTool implements agents.Reader.
func (r Reader) HTTPTool(json []byte) (org.HTTPTool, error) {
	t, err := config.Part{Name: "body", Data: json, Patched: true}.HTTPTool("name", "description", "input_schema", "url", "method", "headers", "class")
	if err != nil {
		return org.HTTPTool{}, refusal(fault.Invalid, err)
	}
	return t, r.checkHeaders(t.Headers)
}

// Runtime implements admin.Reader.
func (r Reader) Runtime(json []byte) (org.Runtime, error) {
	rt, err := config.Part{Name: "body", Data: json, Patched: true, Storage: r.Storage}.Runtime(r.RoundsCap())
	if err != nil {
		return org.Runtime{}, refusal(fault.Unprocessable, err)
	}
	for i, b := range rt.Buckets {
		for member, ref := range map[string]string{"access_key": b.AccessKey, "secret_key": b.SecretKey} {
			if err := r.checkReference(fmt.Sprintf("buckets[%d].%s", i, member), ref); err != nil {
				return org.Runtime{}, err
			}
		}
	}
	if rt.EnableCode && !r.RunsCode {
		return org.Runtime{}, fault.New(fault.Unprocessable, "invalid_value", "enable_code_execution: %s", config.NoSandbox).In("enable_code_execution")
	}
	if name := rt.CompactionModel; name != "" && r.Serves != nil && !r.Serves(name) {
		return org.Runtime{}, fault.New(fault.Unprocessable, "invalid_value", "compaction_model: %s", config.Unserved(name)).In("compaction_model")
	}
	return rt, checkDatabases(rt.Databases)
}

// checkDatabases refuses databases that only the operator's file may name.
func checkDatabases(all []org.Database) error {
	for i, d := range all {
		for key, text := range map[string]string{"url": d.URL, "write_url": d.WriteURL} {
			at := fmt.Sprintf("databases[%d].%s", i, key)
			switch ref, is := org.DatabaseRef(text); {
			case is && ref.Kind() != secret.Vault:
				return fault.New(fault.Unprocessable, "invalid_value", "%s: cannot refer to the gateway's environment or files; store the URL with PUT /api/secrets/NAME and refer to it with secret:NAME", at).In(at)
			case strings.HasPrefix(text, org.SQLite+":"):
				return fault.New(fault.Unprocessable, "invalid_value", "%s: only the configuration file may name a file of SQLite; want a URL of PostgreSQL", at).In(at)
			}
		}
	}
	return nil
}

// checkReference refuses a reference that only the operator may have.
func (r Reader) checkReference(param, text string) error {
	switch ref, err := secret.ParseRef(text); {
	case text == "" || err != nil: // reported
	case ref.Kind() != secret.Vault:
		return fault.New(fault.Unprocessable, "invalid_value", "%s cannot refer to the gateway's environment or files; store the value with PUT /api/secrets/NAME and refer to it with secret:NAME", param).In(param)
	case !r.Vault:
		return fault.New(fault.Unprocessable, "vault_off", "%s: %s: %v", param, ref, secret.ErrNoVault).In(param)
	}
	return nil
}

// Org implements admin.Reader.
func (r Reader) Org(json []byte) (org.Record, error) {
	o, err := config.Part{Name: "body", Data: json}.Org("id", "features")
	if err != nil {
		return org.Record{}, refusal(fault.Invalid, err)
	}
	return org.Record{ID: o.ID, Features: o.Features}, nil
}

// Features implements admin.Reader.
func (r Reader) Features(json []byte) ([]string, error) {
	o, err := config.Part{Name: "body", Data: json, Patched: true}.Org("features")
	if err != nil {
		return nil, refusal(fault.Invalid, err)
	}
	return o.Features, nil
}

// Key implements admin.Reader.
func (r Reader) Key(json []byte, patched bool) (org.Key, error) {
	k, err := config.Part{Name: "body", Data: json, Patched: patched}.Key()
	if err != nil {
		return org.Key{}, refusal(fault.Invalid, err)
	}
	return org.Key{Name: k.Name, Role: k.Role, Rate: k.Rate, Access: k.Access, ExpiresAt: k.ExpiresAt}, nil
}

// ServerSettings implements admin.Reader.
func (Reader) ServerSettings(s org.MCPServer) json.Marshaler { return config.ServerSettings(s) }

// RuntimeSettings implements admin.Reader.
func (Reader) RuntimeSettings(rt org.Runtime) json.Marshaler { return config.RuntimeSettings(rt) }

// refusal shows the mistakes to who made them.
func refusal(code fault.Code, err error) error {
	var mistakes *config.Error
	if !errors.As(err, &mistakes) || len(mistakes.Mistakes) == 0 {
		return err
	}
	first := mistakes.Mistakes[0]
	message := ""
	for i, m := range mistakes.Mistakes {
		if i > 0 {
			message += "; "
		}
		if m.Path != "" {
			message += m.Path + ": "
		}
		message += m.Message
	}
	return fault.New(code, "invalid_value", "%s", message).In(first.Path)
}

// JudgeURL refuses URLs to which the gateway would never connect: those that the outbound
// policy refuses without a lookup, because of their syntax, their port, their name or their
// address.
func JudgeURL(way *egress.Egress) func(url string) error {
	return func(url string) error {
		_, err := way.CheckURL(url)
		var blocked *egress.BlockedError
		if !errors.As(err, &blocked) {
			return nil
		}
		remedy := cmp.Or(AllowedBy(blocked), "; use another URL")
		refused := fault.New(fault.Unprocessable, "outbound_ssrf_blocked", "the outbound policy refuses this URL: %s%s", blocked.Reason, remedy).In("url")
		refused.Setting = blocked.Setting()
		return refused
	}
}

// AllowedBy says how the operator can allow a refused address; "" if only another
// URL helps.
func AllowedBy(e *egress.BlockedError) string {
	switch {
	case e.Setting() == "":
		return ""
	case e.Addr.IsValid():
		return fmt.Sprintf("; the operator can allow it with %s: [%q]", e.Setting(), netip.PrefixFrom(e.Addr, e.Addr.BitLen()))
	}
	return "; the operator can allow its addresses with " + e.Setting()
}
