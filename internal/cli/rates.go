package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/turnpike-gateway/turnpike/internal/config"
	"github.com/turnpike-gateway/turnpike/internal/money"
	"github.com/turnpike-gateway/turnpike/internal/rates"
)

func ratesCommand(p Process) *cobra.Command {
	o := rateOptions{process: p}
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "rates",
		Short: "List and import the prices of models",
		Long: fmt.Sprintf(`List the prices in effect: those of the file that the key "rates" of the
configuration names, then those that this version of the program has, which were
last compared with what providers publish on %s. Prices of tokens are in USD per
million tokens.

If several rows match a model, the one with the longest name or pattern counts. The
rows of your own file come first.`, rates.BuiltinDate),
		Example: `  turnpike rates
  turnpike rates --model claude-opus-5
  turnpike rates import model_prices_and_context_window.json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.list(cmd.OutOrStdout(), asJSON) },
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&o.on, "on", "", "prices in effect on this `DATE`, such as 2026-03-01 (default: today, UTC)")
	cmd.Flags().StringArrayVar(&o.models, "model", nil, "only rows for this `NAME` or pattern with * and ?; may be repeated")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per row")
	cmd.AddCommand(importRates(p))
	return cmd
}

func importRates(p Process) *cobra.Command {
	o := rateOptions{process: p}
	var write bool
	cmd := &cobra.Command{
		Use:   "import FILE",
		Short: "Compare the prices with a public price list, and take over what differs",
		Long: `Read a public price list and print the prices that differ from those in effect:
LiteLLM's model_prices_and_context_window.json, or the api.json of models.dev. The
command downloads nothing. Only models of the providers in the configuration are
compared, by the name and the kind of each provider; without a configuration, models
of OpenAI, Anthropic, Gemini and Bedrock.

With --write the differing rows are appended to the file that the key "rates" of the
configuration names. Rows that are there stay as they are.`,
		Example: `  turnpike rates import --model 'gpt-*' model_prices_and_context_window.json
  turnpike rates import --from 2026-12-01 --write api.json`,
		Args: oneArg,
		RunE: func(cmd *cobra.Command, args []string) error { return o.load(cmd.OutOrStdout(), args[0], write) },
	}
	o.flags(cmd)
	cmd.Flags().StringVar(&o.on, "from", "", "`DATE` from which the imported prices hold, such as 2026-03-01 (default: today, UTC)")
	cmd.Flags().StringArrayVar(&o.models, "model", nil, "only models of this `NAME` or pattern with * and ?; may be repeated")
	cmd.Flags().BoolVar(&write, "write", false, "append the rows to the file of the configuration's key rates")
	return cmd
}

// rateOptions are the flags of both commands.
type rateOptions struct {
	process Process
	file    string
	on      string
	models  []string
}

func (o *rateOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.file, "config", "c", "", "configuration `FILE` (default: turnpike.yaml, if it exists)")
}

// config returns the configuration; without a file an empty one.
func (o *rateOptions) config() (*config.Config, error) {
	if file := configFile(o.file); file != "" {
		return config.Load(file, o.process.Env)
	}
	return new(config.Config), nil
}

func (o *rateOptions) date() (money.Date, error) {
	return money.ParseDate(cmp.Or(o.on, time.Now().UTC().Format(time.DateOnly)))
}

// wants reports whether a model is among those that the flags select. A row is selected by
// its name too, if that is a pattern.
func (o *rateOptions) wants(model string) bool {
	return len(o.models) == 0 || slices.ContainsFunc(o.models, func(m string) bool { return money.Match(m, model) || money.Match(model, m) })
}

// list prints the rows in effect.
func (o *rateOptions) list(out io.Writer, asJSON bool) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	on, err := o.date()
	if err != nil {
		return err
	}
	card, err := rates.Card(c.RateRows)
	if err != nil {
		return err
	}
	var rows []money.Row
	for _, r := range card.InEffect(on) {
		if o.wants(r.Model) {
			rows = append(rows, r)
		}
	}
	if asJSON {
		return printRatesJSON(out, rows)
	}
	t := newTable(out, "MODEL", "PROVIDER", "FROM", "INPUT", "CACHED", "WRITE", "WRITE 1H", "OUTPUT", "OTHER")
	for _, r := range rows {
		p := r.Price()
		t.row(r.Model, cmp.Or(r.Provider, "any"), r.From, p.Input, p.CachedInput, p.CacheWrite, p.CacheWrite1h, p.Output, otherPrices(p))
	}
	return t.flush()
}

// otherPrices says in short which prices a model has beside those of its tokens.
func otherPrices(p money.Price) string {
	var others []string
	if p.Above.Tokens > 0 {
		others = append(others, fmt.Sprintf("above %d tokens %s/%s", p.Above.Tokens, p.Above.Input, p.Above.Output))
	}
	if p.Flex != (money.Rates{}) {
		others = append(others, fmt.Sprintf("flex %s/%s", p.Flex.Input, p.Flex.Output))
	}
	if p.Priority != (money.Rates{}) {
		others = append(others, fmt.Sprintf("priority %s/%s", p.Priority.Input, p.Priority.Output))
	}
	if p.GPUSecond > 0 {
		others = append(others, p.GPUSecond.String()+" per second")
	}
	return strings.Join(others, ", ")
}

func printRatesJSON(out io.Writer, rows []money.Row) error {
	for _, r := range rows {
		row := struct {
			Model    string      `json:"model"`
			Provider string      `json:"provider,omitempty"`
			Price    money.Price `json:"price"`
		}{r.Model, r.Provider, r.Price()}
		if err := printJSON(out, row); err != nil {
			return err
		}
	}
	return nil
}

// load imports a price list.
func (o *rateOptions) load(out io.Writer, file string, write bool) error {
	c, err := o.config()
	if err != nil {
		return err
	}
	if write && c.Rates == "" {
		return errors.New(`--write needs a file: set the key "rates" of the configuration, such as rates: rates.yaml`)
	}
	from, err := o.date()
	if err != nil {
		return err
	}
	data, err := readLimited(file, rates.MaxList)
	if err != nil {
		return err
	}
	list, err := rates.Import(data, from)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	card, err := rates.Card(c.RateRows)
	if err != nil {
		return err
	}
	known := providersOf(c)
	wanted := slices.DeleteFunc(slices.Clone(list.Rows), func(r money.Row) bool { return !slices.Contains(known, r.Provider) || !o.wants(r.Model) })
	changes := rates.Changes(card, wanted)
	if err := printChanges(out, changes); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: %d models compared, %d differ; %d of other providers or not selected, %d without a price of tokens\n",
		list.Form, len(wanted), len(changes), len(list.Rows)-len(wanted), list.Unpriced)
	if !write || len(changes) == 0 {
		return nil
	}
	if err := appendRates(c.Rates, changes, list.Form); err != nil {
		return err
	}
	fmt.Fprintf(out, "%d rows appended to %s; send SIGHUP to a running gateway, or restart it\n", len(changes), plain(c.Rates))
	return nil
}

// providersOf returns the names and kinds of the configured providers.
func providersOf(c *config.Config) []string {
	if len(c.Providers) == 0 {
		return []string{"openai", "anthropic", "gemini", "bedrock"}
	}
	var all []string
	for _, p := range c.Providers {
		all = append(all, p.Name, strings.TrimSuffix(p.Kind, "-responses"))
	}
	return all
}

func printChanges(out io.Writer, changes []rates.Change) error {
	if len(changes) == 0 {
		return nil
	}
	t := newTable(out, "MODEL", "PROVIDER", "FROM", "WAS", "IS")
	for _, c := range changes {
		t.row(c.Row.Model, c.Row.Provider, c.Row.From, shortPrice(c.Was), shortPrice(c.Row.Price()))
	}
	return t.flush()
}

// shortPrice is a price in one cell: input, cached input, writes and output.
func shortPrice(p money.Price) string {
	if !p.Known() {
		return "none"
	}
	s := fmt.Sprintf("in %s, cached %s, write %s/%s, out %s", p.Input, p.CachedInput, p.CacheWrite, p.CacheWrite1h, p.Output)
	if others := otherPrices(p); others != "" {
		s += ", " + others
	}
	return s
}

// appendRates appends rows to a rate card. The file is replaced as a whole, and only by
// one that can be read.
func appendRates(file string, changes []rates.Change, form string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("rates: %w", err)
	}
	rows := make([]money.Row, len(changes))
	for i, c := range changes {
		rows[i] = c.Row
	}
	data := bytes.Clone(old)
	if len(data) > 0 && !bytes.HasSuffix(data, []byte("\n")) {
		data = append(data, '\n')
	}
	data = append(data, "# imported from "+form+"\n"...)
	data = append(data, config.FormatRates(rows)...)
	if _, err := config.ReadRates(file, data); err != nil {
		return fmt.Errorf("%s is not written: with the new rows it cannot be read (want a list with one row under the other): %w", file, err)
	}
	return replaceFile(file, data)
}

// replaceFile writes a file beside the one with that name, and puts it in its place.
func replaceFile(file string, data []byte) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }() // after the rename it is gone
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(info.Mode().Perm()), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), file)
}

// readLimited reads a file of at most limit bytes.
func readLimited(file string, limit int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s is larger than %d bytes", file, limit)
	}
	return data, err
}
