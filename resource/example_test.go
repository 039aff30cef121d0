package resource_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/turnpike-gateway/turnpike"
	"github.com/turnpike-gateway/turnpike/model"
	"github.com/turnpike-gateway/turnpike/resource"
	"github.com/turnpike-gateway/turnpike/tool"
	"github.com/turnpike-gateway/turnpike/turnpiketest"
)

// scripted stands for a model such as openai.Model("gpt-5.4", openai.Options{APIKey: key}).
func scripted(turns ...turnpiketest.Step) model.Model {
	return turnpiketest.Model(new(testing.T), turns...)
}

type City struct {
	Name   string `json:"name"`
	People int    `json:"people"`
}

type Cities map[string]City

func (c Cities) Get(_ context.Context, id string) (City, error) {
	city, ok := c[id]
	if !ok {
		return City{}, resource.ErrNotFound
	}
	return city, nil
}

func (c Cities) Update(_ context.Context, id string, set struct {
	People int `json:"people" jsonschema:"How many live there."`
}) (City, error) {
	city, ok := c[id]
	if !ok {
		return City{}, resource.ErrNotFound
	}
	city.People = set.People
	c[id] = city
	return city, nil
}

// A Go value whose methods are tools. The model sees what the caller of the run may use, and a person uses the same
// resource under the same permissions.
func Example() {
	cities := resource.New("city", Cities{"bern": {"Bern", 137_000}})
	agent := &turnpike.Agent{
		Model: scripted(
			turnpiketest.Call("get_city", map[string]string{"id": "bern"}),
			turnpiketest.Say("137,000 people live in Bern."),
		),
		Resources: []tool.Provider{cities},
	}
	reader := turnpike.Caller{ID: "ada", Permissions: []string{"get_city"}}
	result, err := agent.Run(context.Background(), turnpike.Text("How many people live in Bern?"), turnpike.As(reader))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Text)

	var bern City
	err = cities.As(reader).Call(context.Background(), resource.Get, map[string]string{"id": "bern"}, &bern)
	fmt.Println(bern.People, err)
	err = cities.As(reader).Call(context.Background(), resource.Update, nil, nil)
	fmt.Println(err, errors.Is(err, resource.ErrUnknown))
	// Output:
	// 137,000 people live in Bern.
	// 137000 <nil>
	// resource city: unknown verb "update" true
}

// A table of a database. Each caller has its own rows.
func ExampleTable() {
	dir, _ := os.MkdirTemp("", "table")
	defer func() { _ = os.RemoveAll(dir) }()
	db, err := sql.Open("sqlite", filepath.Join(dir, "shop.db"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer func() { _ = db.Close() }()
	_, err = db.ExecContext(context.Background(), `CREATE TABLE orders (id INTEGER PRIMARY KEY, customer TEXT NOT NULL, item TEXT NOT NULL, cents INTEGER NOT NULL);
		INSERT INTO orders (customer, item, cents) VALUES ('ada', 'tea', 350), ('ada', 'pot', 2900), ('eve', 'tea', 350)`)
	if err != nil {
		fmt.Println(err)
		return
	}

	orders, err := resource.Table(context.Background(), db, "orders", resource.TableOptions{
		Verbs:   []resource.Verb{resource.Get, resource.Search, resource.Create},
		Columns: []string{"id", "item", "cents"},
		Rows:    map[string]func(turnpike.Caller) any{"customer": func(c turnpike.Caller) any { return c.ID }},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	agent := &turnpike.Agent{
		Model: scripted(
			turnpiketest.Call("search_orders", json.RawMessage(`{"where": {"cents": {"gte": 1000}}, "order_by": "cents"}`)),
			turnpiketest.Say("You have bought a pot."),
		),
		Resources: []tool.Provider{orders},
	}
	ada := turnpike.Caller{ID: "ada", Permissions: []string{"search_orders"}}
	result, err := agent.Run(context.Background(), turnpike.Text("What was expensive?"), turnpike.As(ada), turnpike.ShowTrace())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(result.Steps[0].Calls[0].Result)
	fmt.Println(result.Text)
	// Output:
	// {"rows":[{"id":2,"item":"pot","cents":2900}],"more":false}
	// You have bought a pot.
}

// An audit log of the program's own. A call that may write is recorded before it is executed.
func ExampleResource_Audit() {
	cities := resource.New("city", Cities{"bern": {"Bern", 137_000}}).Audit(printed{})
	ada := turnpike.Caller{ID: "ada", Permissions: []string{"*"}}
	err := cities.As(ada).Call(context.Background(), resource.Update, map[string]any{"id": "bern", "set": map[string]int{"people": 137_001}}, nil)
	fmt.Println(err)
	// Output:
	// ada update_city started
	// ada update_city ok
	// <nil>
}

type printed struct{}

func (printed) Record(_ context.Context, r resource.Record) error {
	fmt.Println(r.Caller.ID, r.Tool, r.Status)
	return nil
}
