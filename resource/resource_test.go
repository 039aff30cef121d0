package resource_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type product struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Cents int    `json:"cents"`
}

type find struct {
	Name string `json:"name,omitempty" jsonschema:"Part of the name."`
}

type change struct {
	Name  *string `json:"name,omitempty"`
	Cents *int    `json:"cents,omitempty"`
}

// shop is a value with all verbs and one more method.
type shop struct {
	mu     sync.Mutex
	stock  map[string]product
	caller tool.Caller // of the last call
}

var (
	_ resource.Getter[product]           = (*shop)(nil)
	_ resource.Searcher[find, []product] = (*shop)(nil)
	_ resource.Creator[product, string]  = (*shop)(nil)
	_ resource.Updater[change, product]  = (*shop)(nil)
	_ resource.Deleter                   = (*shop)(nil)
	_ resource.Methods                   = (*shop)(nil)
)

func newShop() *shop {
	return &shop{stock: map[string]product{"1": {"1", "Green tea", 350}, "2": {"2", "Black tea", 300}}}
}

func (s *shop) Get(ctx context.Context, id string) (product, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.caller = tool.From(ctx).Caller
	p, ok := s.stock[id]
	if !ok {
		return p, fmt.Errorf("product %s: %w", id, resource.ErrNotFound)
	}
	return p, nil
}

func (s *shop) Search(_ context.Context, q find) ([]product, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []product{}
	for _, p := range s.stock {
		if strings.Contains(p.Name, q.Name) {
			out = append(out, p)
		}
	}
	slices.SortFunc(out, func(a, b product) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func (s *shop) Create(_ context.Context, p product) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.stock[p.ID]; ok {
		return "", errors.New("there is such a product")
	}
	s.stock[p.ID] = p
	return p.ID, nil
}

func (s *shop) Update(_ context.Context, id string, c change) (product, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.stock[id]
	if !ok {
		return p, resource.ErrNotFound
	}
	if c.Name != nil {
		p.Name = *c.Name
	}
	if c.Cents != nil {
		p.Cents = *c.Cents
	}
	s.stock[id] = p
	return p, nil
}

func (s *shop) Delete(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stock, id)
	return nil
}

func (s *shop) MCPTools() []tool.Tool {
	type order struct {
		ID string `json:"id"`
		N  int    `json:"n"`
	}
	return []tool.Tool{tool.Func("restock", "Order more of a product.", func(_ context.Context, o order) (string, error) {
		return fmt.Sprintf("%d of %s are ordered", o.N, o.ID), nil
	}).ApproveIf(func(o order) bool { return o.N > 100 }).Key(func(o order) string { return o.ID }).Price(tool.NanoUSD(7))}
}

func anybody() tool.Caller { return tool.Caller{ID: "root", Permissions: []string{"*"}} }

func names(tools []tool.Tool) (out []string) {
	for _, t := range tools {
		out = append(out, t.Definition().Name)
	}
	return out
}

func call(t *testing.T, r tool.Provider, c tool.Caller, name, arguments string) (string, bool) {
	t.Helper()
	for _, one := range r.Tools(anybody()) {
		if one.Definition().Name == name {
			result, err := one.Call(t.Context(), tool.Call{Key: "0.0", Attempt: 1, Caller: c, Arguments: json.RawMessage(arguments)})
			if err != nil {
				t.Fatal(err)
			}
			return result.Parts[0].Text, result.IsError
		}
	}
	t.Fatalf("there is no tool %s", name)
	return "", false
}

func TestWhatAValueImplementsIsItsTools(t *testing.T) {
	r := resource.New("product", newShop())
	want := []string{"get_product", "search_product", "create_product", "update_product", "delete_product", "restock_product"}
	if got := names(r.Tools(anybody())); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, c := range []struct{ name, arguments, want string }{
		{"get_product", `{"id":"1"}`, `{"id":"1","name":"Green tea","cents":350}`},
		{"get_product", `{"id":"9"}`, `product 9: not found!`},
		{"get_product", `{}`, `invalid arguments: id or set is missing!`},
		{"search_product", `{"name":"Green"}`, `[{"id":"1","name":"Green tea","cents":350}]`},
		{"search_product", `{}`, `[{"id":"1","name":"Green tea","cents":350},{"id":"2","name":"Black tea","cents":300}]`},
		{"create_product", `{"id":"3","name":"Rooibos","cents":250}`, `"3"`},
		{"create_product", `{"id":"3","name":"Rooibos","cents":250}`, `there is such a product!`},
		{"update_product", `{"id":"3","set":{"cents":0}}`, `{"id":"3","name":"Rooibos","cents":0}`},
		{"delete_product", `{"id":"3"}`, `{"done":true}`},
		{"get_product", `{"id":"3"}`, `product 3: not found!`},
		{"restock_product", `{"id":"1","n":5}`, `5 of 1 are ordered`},
	} {
		got, failed := call(t, r, anybody(), c.name, c.arguments)
		if failed {
			got += "!"
		}
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.name, c.arguments, got, c.want)
		}
	}
}

func TestWhatToolsOfAResourceSayOfThemselves(t *testing.T) {
	r := resource.New("product", newShop()).Describe("Tea.").Idempotent(resource.Update).
		ApproveIf(resource.Delete, func(arguments json.RawMessage) bool { return strings.Contains(string(arguments), `"1"`) })
	classes := map[string]tool.Class{}
	for _, one := range r.Tools(anybody()) {
		d := one.Definition()
		classes[d.Name] = tool.ClassOf(one)
		if !strings.HasSuffix(d.Description, "\n\nTea.") || one.(tool.Checked).Check() != nil {
			t.Errorf("%+v", d)
		}
		asks := one.(tool.Asker).Asks
		switch d.Name {
		case "delete_product":
			if !asks(json.RawMessage(`{"id":"1"}`)) || asks(json.RawMessage(`{"id":"2"}`)) || !*d.Annotations.Destructive {
				t.Error("approval of a delete")
			}
		case "restock_product":
			if !asks(json.RawMessage(`{"id":"1","n":101}`)) || asks(json.RawMessage(`{"id":"1","n":1}`)) {
				t.Error("approval of a method")
			}
			if key := one.(tool.Keyer).EffectKey(json.RawMessage(`{"id":"1","n":1}`)); key != "restock_product:restock:1" || one.(tool.Priced).Cost().Nano() != 7 {
				t.Error(key)
			}
		}
	}
	want := map[string]tool.Class{
		"get_product": tool.Read, "search_product": tool.Read, "create_product": tool.Once, "update_product": tool.Keyed,
		"delete_product": tool.Once, "restock_product": tool.Keyed,
	}
	if fmt.Sprint(classes) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", classes, want)
	}
}

type onlyGet struct{}

func (onlyGet) Get(context.Context, string) (string, error) { return "it", nil }

type wrongGet struct{}

func (wrongGet) Get(string) (string, error) { return "it", nil }

// getAndSearch is a value with two verbs, and a method that is none.
type getAndSearch struct{ onlyGet }

func (getAndSearch) Search(context.Context, struct{}) ([]string, error) { return nil, nil }
func (getAndSearch) Burn(context.Context, string) error                 { return nil }

// A type with two verbs has exactly two tools, whatever other methods it has; a value that is not exposed has none. // D30 D31
func TestOnlyVerbsAndDeclaredMethodsAreTools(t *testing.T) {
	exposed := resource.New("page", getAndSearch{})
	if got := names(exposed.Tools(anybody())); !slices.Equal(got, []string{"get_page", "search_page"}) {
		t.Errorf("the tools are %q", got)
	}
	for provider, want := range map[tool.Provider]int{exposed: 2, nil: 0} {
		m := turnpiketest.NewScript(t, "text Done.\n")
		a := &turnpike.Agent{Model: m}
		if provider != nil {
			a.Resources = []tool.Provider{provider}
		}
		if _, err := a.Run(t.Context(), turnpike.Text("go")); err != nil || len(m.Requests()[0].Tools) != want {
			t.Errorf("%d tools are offered, want %d: %v", len(m.Requests()[0].Tools), want, err)
		}
	}
}

type wrongTools struct{ onlyGet }

func (wrongTools) MCPTools() []string { return nil }

type wrongQuery struct{}

func (wrongQuery) Search(context.Context, string) (string, error) { return "it", nil }

type twice struct{ onlyGet }

func (twice) MCPTools() []tool.Tool {
	return []tool.Tool{tool.Func("get", "", func(context.Context, struct{}) (string, error) { return "", nil })}
}

type long struct{ onlyGet }

func (long) MCPTools() []tool.Tool {
	return []tool.Tool{tool.Func(strings.Repeat("x", 63), "", func(context.Context, struct{}) (string, error) { return "", nil })}
}

func TestWrongResources(t *testing.T) {
	for want, value := range map[string]any{
		"the value is nil":                          nil,
		"has none of the methods Get, Search":       7,
		"it is a func(string) (string, error), not": wrongGet{},
		"MCPTools is a func() []string":             wrongTools{},
		"its last argument is a struct or a map":    wrongQuery{},
		"has two tools of the name get_x":           twice{},
		"more than 64 characters":                   long{},
	} {
		if _, err := resource.NewResource("x", value); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %v, want %s", value, err, want)
		}
	}
	if _, err := resource.NewResource("", onlyGet{}); err == nil {
		t.Error("no name")
	}
	for want, r := range map[string]*resource.Resource{
		`Idempotent names the verb "update"; it has get`: resource.New("x", onlyGet{}).Idempotent(resource.Update),
		`ApproveIf names the verb "delete"`:              resource.New("x", onlyGet{}).ApproveIf(resource.Delete, func(json.RawMessage) bool { return true }),
		`Only names the verb "search"`:                   resource.New("x", onlyGet{}).Only(resource.Get, resource.Search),
		`no verb is left`:                                resource.New("x", onlyGet{}).Only(),
		`the auditor is nil`:                             resource.New("x", onlyGet{}).Audit(nil),
	} {
		_, inSet := resource.NewSet(r)
		_, err := (&turnpike.Agent{Model: turnpiketest.NewScript(t, "text x\n"), Resources: []tool.Provider{r}}).Run(t.Context(), turnpike.Text("go"))
		for _, err := range []error{r.Check(), inSet, err} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %s", err, want)
			}
		}
	}
	if _, err := (&turnpike.Agent{Model: turnpiketest.NewScript(t, "text x\n"), Resources: []tool.Provider{nil}}).Run(t.Context(), turnpike.Text("go")); err == nil {
		t.Error("an agent with a resource that is nil")
	}
	defer func() {
		if recover() == nil {
			t.Error("New does not panic")
		}
	}()
	resource.New("x", 7)
}

// Three names that look alike are three resources, and none of them has its tools' names from the others.
func TestNamesOfTools(t *testing.T) {
	made := map[string]string{}
	for _, name := range []string{"shop_products", "shop/products", "shop.products", "Größe", "龍", "竜", strings.Repeat("x", 48), strings.Repeat("x", 49), strings.Repeat("x", 50), "a b", " a b"} {
		got := names(resource.New(name, onlyGet{}).Tools(anybody()))[0]
		if other, taken := made[got]; taken {
			t.Errorf("%q and %q are both %s", name, other, got)
		}
		if len(got) > 64 || strings.Trim(got, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			t.Errorf("%q is not a name for every provider", got)
		}
		made[got] = name
	}
	for name, want := range map[string]string{
		"shop_products": "get_shop_products", "shop/products": "get_shop_products_", "shop.products": "get_shop_products_", "龍": "get_resource_",
	} {
		got := names(resource.New(name, onlyGet{}).Tools(anybody()))[0]
		if isPlain := name == want[4:]; isPlain && got != want || !isPlain && (!strings.HasPrefix(got, want) || len(got) != len(want)+6) {
			t.Errorf("%q is %s, want %s", name, got, want)
		}
	}
	if _, err := resource.NewSet(resource.New("shop/products", onlyGet{}), resource.New("shop.products", onlyGet{}), resource.New("shop_products", onlyGet{})); err != nil {
		t.Error(err)
	}
	_, err := resource.NewSet(resource.New("x", onlyGet{}), resource.New("x", onlyGet{}))
	if err == nil || !strings.Contains(err.Error(), "both a tool get_x") {
		t.Error(err)
	}
}

// The permissions of the caller filter the list, and each call is checked again. // C20
func TestPermissions(t *testing.T) {
	value := newShop()
	set, err := resource.NewSet(resource.New("product", value), resource.New("other", onlyGet{}))
	if err != nil {
		t.Fatal(err)
	}
	ada := tool.Caller{ID: "ada", Permissions: []string{"get_product", "search_product", "drop_product"}}
	if got := fmt.Sprint(names(set.Tools(ada))); got != "[get_product search_product]" {
		t.Error(got)
	}
	if got := len(set.Tools(tool.Caller{ID: "eve"})); got != 0 {
		t.Errorf("eve sees %d tools", got)
	}
	if all, err := set.List(t.Context()); err != nil || len(all) != len(set.Permissions()) {
		t.Error(all, err)
	}
	if got, failed := call(t, set, ada, "delete_product", `{"id":"1"}`); got != "unknown tool delete_product" || !failed || len(value.stock) != 2 {
		t.Error(got, failed)
	}
	if _, failed := call(t, set, ada, "get_product", `{"id":"1"}`); failed || value.caller.ID != "ada" {
		t.Error(failed, value.caller)
	}
	lost := tool.Caller{ID: "ada"} // since the list was made
	if got, failed := call(t, set, lost, "get_product", `{"id":"1"}`); got != "unknown tool get_product" || !failed {
		t.Error(got, failed)
	}
}

// The model of a run sees what its caller may use, and what Only leaves of it. // C20 C21
func TestAnAgentWithAResource(t *testing.T) {
	for _, c := range []struct {
		opts []turnpike.Option
		want string
	}{
		{nil, "[create_product delete_product get_product restock_product search_product update_product]"},
		{[]turnpike.Option{turnpike.As(tool.Caller{ID: "ada", Permissions: []string{"get_product", "search_product"}})}, "[get_product search_product]"},
		{[]turnpike.Option{turnpike.Only("search_product")}, "[search_product]"},
		{[]turnpike.Option{turnpike.Only("search_product", "get_product"), turnpike.As(tool.Caller{ID: "ada", Permissions: []string{"get_product"}})}, "[get_product]"},
	} {
		value := newShop()
		m := turnpiketest.NewScript(t, "call c1 get_product {\"id\":\"2\"}\ncall c2 delete_product {\"id\":\"2\"}\n\ntext Done.\n")
		a := &turnpike.Agent{Model: m, Resources: []tool.Provider{resource.New("product", value)}}
		if _, err := a.Run(t.Context(), turnpike.Text("go"), c.opts...); err != nil {
			t.Fatal(err)
		}
		var seen []string
		for _, offered := range m.Requests()[0].Tools {
			seen = append(seen, offered.Name)
		}
		slices.Sort(seen)
		if got := fmt.Sprint(seen); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
		if _, there := value.stock["2"]; there == strings.Contains(c.want, "delete") {
			t.Errorf("with %s, the product is there: %v", c.want, there)
		}
	}
}

// The first call commits, whatever becomes of the second. // C19
func TestEachCallCommitsOnItsOwn(t *testing.T) {
	value := newShop()
	m := turnpiketest.NewScript(t, "call c1 update_product {\"id\":\"1\",\"set\":{\"cents\":1}}\ncall c2 update_product {\"id\":\"9\",\"set\":{\"cents\":1}}\n\ntext Done.\n")
	a := &turnpike.Agent{Model: m, Resources: []tool.Provider{resource.New("product", value)}, ToolErrors: turnpike.Abort}
	_, err := a.Run(t.Context(), turnpike.Text("go"))
	if !errors.Is(err, resource.ErrNotFound) || value.stock["1"].Cents != 1 {
		t.Error(err, value.stock)
	}
}

func TestAPersonUsesAResource(t *testing.T) {
	r := resource.New("product", newShop())
	ada := r.As(tool.Caller{ID: "ada", Permissions: []string{"get_product", "update_product", "restock_product"}})
	if got := fmt.Sprint(ada.Verbs()); got != "[get update restock]" {
		t.Error(got)
	}
	var p product
	if err := ada.Call(t.Context(), resource.Update, map[string]any{"id": "1", "set": map[string]int{"cents": 5}}, &p); err != nil || p.Cents != 5 {
		t.Error(p, err)
	}
	if err := ada.Call(t.Context(), resource.Get, map[string]string{"id": "1"}, nil); err != nil {
		t.Error(err)
	}
	var said string
	if err := ada.Call(t.Context(), "restock", map[string]any{"id": "1", "n": 500}, &said); err != nil || said != "500 of 1 are ordered" {
		t.Error(said, err)
	}
	for _, c := range []struct {
		verb resource.Verb
		in   any
		want error
	}{
		{resource.Get, map[string]string{"id": "9"}, resource.ErrNotFound},
		{resource.Get, map[string]int{"id": 1}, resource.ErrInvalid},
		{resource.Get, nil, resource.ErrInvalid},
		{resource.Get, func() {}, resource.ErrInvalid},
		{resource.Delete, map[string]string{"id": "1"}, resource.ErrUnknown},
		{resource.Delete, nil, resource.ErrUnknown},
		{"fly", nil, resource.ErrUnknown},
	} {
		if err := ada.Call(t.Context(), c.verb, c.in, nil); !errors.Is(err, c.want) {
			t.Errorf("%s %v: %v, want %v", c.verb, c.in, err, c.want)
		}
	}
	if ada.Call(t.Context(), resource.Delete, nil, nil).Error() != strings.ReplaceAll(ada.Call(t.Context(), "fly", nil, nil).Error(), "fly", "delete") {
		t.Error("a verb that the caller may not use differs from one that does not exist")
	}
}

// log is an auditor.
type log struct {
	mu      sync.Mutex
	records []resource.Record
	fail    resource.Status // of the records that it does not take
}

var errFull = errors.New("the disk is full")

func (l *log) Record(_ context.Context, r resource.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Status == l.fail {
		return errFull
	}
	l.records = append(l.records, r)
	return nil
}

// form returns what a record says, without what differs from call to call.
func form(r resource.Record) string {
	return fmt.Sprintf("%s %s/%s %s %s %d took=%v args=%d result=%d", r.Caller.ID, r.Resource, r.Tool, r.Class, r.Status, r.Attempt, r.Took > 0, len(r.ArgsDigest), len(r.ResultDigest))
}

// A call of an agent, and the same call of a person, leave records of the same form. One that may write is
// recorded before it is executed. // L13
func TestAgentsAndPeopleLeaveTheSameRecords(t *testing.T) {
	l := &log{}
	value := newShop()
	r := resource.New("product", value).Audit(l)
	ada := tool.Caller{ID: "ada", Org: "acme", Permissions: []string{"*"}}
	a := &turnpike.Agent{
		Model:     turnpiketest.NewScript(t, "call c1 update_product {\"set\":{\"cents\":1},\"id\":\"1\"}\n\ncall c2 get_product {\"id\":\"9\"}\n\ntext Done.\n"),
		Resources: []tool.Provider{r},
	}
	result, err := a.Run(t.Context(), turnpike.Text("go"), turnpike.As(ada))
	if err != nil {
		t.Fatal(err)
	}
	byAgent := l.records
	l.records = nil
	if err := r.As(ada).Call(t.Context(), resource.Update, map[string]any{"id": "1", "set": map[string]int{"cents": 1}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.As(ada).Call(t.Context(), resource.Get, map[string]any{"id": "9"}, nil); !errors.Is(err, resource.ErrNotFound) {
		t.Fatal(err)
	}
	want := []string{
		"ada product/update_product once started 1 took=false args=32 result=0",
		"ada product/update_product once ok 1 took=true args=32 result=32",
		"ada product/get_product read error 1 took=true args=32 result=32",
	}
	if len(byAgent) != len(want) || len(l.records) != len(want) {
		t.Fatalf("%v\n%v", byAgent, l.records)
	}
	for i := range want {
		agent, person := byAgent[i], l.records[i]
		if form(agent) != want[i] || form(person) != want[i] {
			t.Errorf("record %d:\nagent  %s\nperson %s\nwant   %s", i, form(agent), form(person), want[i])
		}
		if agent.ArgsDigest != person.ArgsDigest || agent.ResultDigest != person.ResultDigest || agent.Caller.Org != "acme" || person.Caller.Org != "acme" || agent.At.IsZero() {
			t.Errorf("record %d: %+v, %+v", i, agent, person)
		}
		if agent.Run != result.RunID || person.Run != "" || agent.Call == "" {
			t.Errorf("record %d: run %q and %q", i, agent.Run, person.Run)
		}
	}
}

func TestACallThatCannotBeRecorded(t *testing.T) {
	value := newShop()
	l := &log{fail: resource.Started}
	r := resource.New("product", value).Audit(l)
	err := r.As(anybody()).Call(t.Context(), resource.Delete, map[string]string{"id": "1"}, nil)
	if !errors.Is(err, errFull) || !errors.Is(err, tool.ErrNotSent) || strings.Contains(err.Error(), "disk") || len(value.stock) != 2 {
		t.Errorf("a write: %v, %d products", err, len(value.stock))
	}
	l.fail = resource.OK
	if err := r.As(anybody()).Call(t.Context(), resource.Get, map[string]string{"id": "1"}, nil); !errors.Is(err, errFull) {
		t.Errorf("a read: %v", err)
	}
	if err := r.As(anybody()).Call(t.Context(), resource.Delete, map[string]string{"id": "1"}, nil); err != nil || len(value.stock) != 1 {
		t.Errorf("a write that was carried out: %v, %d products", err, len(value.stock))
	}
	l.fail, l.records = "", nil
	if err := r.As(tool.Caller{ID: "eve"}).Call(t.Context(), resource.Delete, map[string]string{"id": "2"}, nil); !errors.Is(err, resource.ErrUnknown) {
		t.Error(err)
	}
	if len(l.records) != 1 || form(l.records[0]) != "eve product/delete_product once denied 1 took=false args=32 result=0" {
		t.Errorf("%+v", l.records)
	}
}

type panics struct{}

func (panics) Create(context.Context, struct{}) (string, error) { panic("midway") }

func TestACallThatPanicsIsUnknown(t *testing.T) {
	l := &log{}
	a := &turnpike.Agent{
		Model:     turnpiketest.NewScript(t, "call c1 create_x {}\n\ntext Done.\n"),
		Resources: []tool.Provider{resource.New("x", panics{}).Audit(l)},
	}
	if _, err := a.Run(t.Context(), turnpike.Text("go")); err != nil {
		t.Fatal(err)
	}
	if len(l.records) != 2 || l.records[1].Status != resource.Unknown {
		t.Errorf("%+v", l.records)
	}
}

func TestACopy(t *testing.T) {
	first, second := &log{}, &log{}
	r := resource.New("x", onlyGet{}).Audit(first)
	c := r.Copy().Audit(second).Describe("Copied.")
	for _, one := range []*resource.Resource{r, c} {
		if err := one.As(anybody()).Call(t.Context(), resource.Get, map[string]string{"id": ""}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if len(first.records) != 2 || len(second.records) != 1 || strings.Contains(r.Tools(anybody())[0].Definition().Description, "Copied") {
		t.Error(len(first.records), len(second.records))
	}
}
