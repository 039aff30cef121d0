package sqltool

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// A server that analyses a statement with debug_print_parse=on reports the tree that it has made: a message with the
// title "parse tree:" whose detail is
//
//	{QUERY :commandType 1 :targetList ({TARGETENTRY :expr {FUNCEXPR :funcid 870 :args (…) …} :resname lower …}) …}
//
// Nothing is executed. The tree names every function and operator by its id, also those that the statement names as
// columns ((x).f), casts (x::t) and operators. Its form differs between versions of the server. What is not known here
// is an error, so that nothing is overlooked.

// reportTitle is the text of the message with a report.
const reportTitle = "parse tree:"

// useKind says how a statement uses a function or an operator.
type useKind string

const (
	useCall     useKind = "call"     // by its name, or as an attribute
	useCast     useKind = "cast"     // written or added by the server; a call in the form of a cast, too
	useOperator useKind = "operator" // the id is that of an operator
	useFunction useKind = "function" // of an operator
	useRange    useKind = "range"    // of a window frame
	useSample   useKind = "sample"   // of TABLESAMPLE
)

// use is a function or an operator that a statement uses.
type use struct {
	kind useKind
	id   uint32
}

// reportBytes returns the size of the largest report that is read about a statement with so many bytes.
func reportBytes(statement int) int { return 1<<20 + statement<<8 }

// reports are the reports that a connection has received while they were asked for.
type reports struct {
	most  int // bytes
	size  int
	texts []string
}

// reportsKey is the key of *reports in the custom data of a connection.
const reportsKey = "turnpike.reports"

// onNotice keeps the reports of a connection that waits for them. Other messages are dropped.
func onNotice(conn *pgconn.PgConn, n *pgconn.Notice) {
	if r, ok := conn.CustomData()[reportsKey].(*reports); ok && n.Message == reportTitle {
		if r.size += len(n.Detail); r.size <= r.most {
			r.texts = append(r.texts, n.Detail)
		}
	}
}

// prepareReported prepares the statement in a transaction with debug_print_parse=on, and returns what it uses.
func prepareReported(ctx context.Context, conn *pgconn.PgConn, name, text string) ([]use, error) {
	r := &reports{most: reportBytes(len(text))}
	conn.CustomData()[reportsKey] = r
	conn.Frontend().SetMaxBodyLen(r.most)
	_, err := conn.Prepare(ctx, name, text, nil)
	conn.Frontend().SetMaxBodyLen(maxMessage)
	delete(conn.CustomData(), reportsKey)
	switch {
	case tooLarge(err), err == nil && r.size > r.most:
		return nil, &refusedError{fmt.Sprintf("what the query does cannot be checked: the server's report about it is larger than %d bytes; write a shorter query, with fewer constants and columns", r.most)}
	case err != nil:
		return nil, err
	case len(r.texts) == 0:
		return nil, &refusedError{"what the query does cannot be checked: the server sends no report about it, as PostgreSQL does with debug_print_parse"}
	}
	var all []use
	for _, text := range r.texts { // the server may analyse the statement more than once
		one, err := readReport(text)
		if err != nil {
			return nil, err
		}
		all = append(all, one...)
	}
	return all, nil
}

// readReport returns the functions and operators that the report of a cursor's statement names.
func readReport(text string) ([]use, error) {
	if hasBrokenWord(text) {
		return nil, unreadable("a name is too long")
	}
	p := &reportParser{text: text}
	if err := p.node(""); err != nil {
		return nil, err
	}
	switch rest, err := p.next(); {
	case err != nil:
		return nil, err
	case rest != "":
		return nil, unreadable("%q after the end", rest)
	case !p.cursor:
		return nil, unreadable("it has no cursor")
	}
	return p.uses, nil
}

// unreadable is the error of a report that cannot be read.
func unreadable(format string, args ...any) error {
	return &refusedError{"what the query does cannot be checked: the server's report about it cannot be read (" + fmt.Sprintf(format, args...) +
		"); the versions 13 to 18 of PostgreSQL are supported, and names of at most 63 plain characters"}
}

// lineBytes is the length of the longest line of a report. The server breaks a line at a space, which it leaves out. A
// line without one is broken within a word.
const lineBytes = 78

// hasBrokenWord reports whether a word of the report may be broken. Only a name with many escaped characters is so long.
func hasBrokenWord(text string) bool {
	run, escaped := 0, false
	for i := range len(text) {
		c := text[i]
		if c == ' ' || c == '\n' && !escaped {
			run = 0
		} else if run++; run >= lineBytes-1 {
			return true
		}
		escaped = c == '\\' && !escaped
	}
	return false
}

// reportParser reads a report.
type reportParser struct {
	text   string
	at     int
	depth  int
	cursor bool // the statement of a cursor was read
	uses   []use
}

// maxDepth is how deep the nodes and lists of a report may be nested.
const maxDepth = 10_000

// next returns the next word or parenthesis; "" = the report ends. A backslash makes the character after it a part of a
// word.
func (p *reportParser) next() (string, error) {
	for p.at < len(p.text) && isReportSpace(p.text[p.at]) {
		p.at++
	}
	start := p.at
	for ; p.at < len(p.text) && !isReportSpace(p.text[p.at]); p.at++ {
		switch c := p.text[p.at]; {
		case c == '\\' && p.at+1 == len(p.text):
			return "", unreadable("it ends within a name")
		case c == '\\':
			p.at++
		case isParenthesis(c) && p.at > start:
			return p.text[start:p.at], nil
		case isParenthesis(c):
			p.at++
			return p.text[start:p.at], nil
		}
	}
	return p.text[start:p.at], nil
}

func isReportSpace(c byte) bool { return c == ' ' || c == '\n' || c == '\t' }

func isParenthesis(c byte) bool { return c == '(' || c == ')' || c == '{' || c == '}' }

// expect reads a word that must follow.
func (p *reportParser) expect(word string) error {
	got, err := p.next()
	if err == nil && got != word {
		err = unreadable("%q in place of %q", shortened(got), word)
	}
	return err
}

func shortened(word string) string { return word[:min(len(word), 40)] }

func (p *reportParser) enter() error {
	if p.depth++; p.depth > maxDepth {
		return unreadable("it is nested too deeply")
	}
	return nil
}

// node reads a node. In is the field of the node around it.
func (p *reportParser) node(in string) error {
	if err := p.expect("{"); err != nil {
		return err
	}
	return p.openNode(in)
}

// openNode reads a node after its brace.
func (p *reportParser) openNode(in string) error {
	name, err := p.next()
	if err == nil {
		err = p.enter()
	}
	if err == nil && !isKnownNode(name) {
		err = unreadable("the node %q is not known", shortened(name))
	}
	if err == nil && name == "QUERY" {
		p.cursor = p.cursor || in == "DECLARECURSORSTMT.query" || in == "DECLARECURSOR.query"
	}
	call := use{kind: useCall}
	for err == nil {
		var field string
		switch field, err = p.next(); {
		case err != nil:
		case field == "}":
			if call.id != 0 {
				p.uses = append(p.uses, call)
			}
			p.depth--
			return nil
		case !strings.HasPrefix(field, ":"):
			err = unreadable("%q in place of a field of %s", shortened(field), name)
		default:
			err = p.value(name, name+"."+field[1:], &call)
		}
	}
	return err
}

// value reads the value of a field. The call is that of the node.
func (p *reportParser) value(node, field string, call *use) error {
	word, err := p.next()
	if err != nil {
		return err
	}
	what := fieldOf(node, field)
	switch word {
	case "", ")", "}":
		return unreadable("%s has no value", field)
	case "{":
		if what != plainField && what != utilityField {
			return unreadable("%s is a node", field)
		}
		return p.openNode(field)
	case "(":
		return p.list(field, what)
	}
	if what == constantField && word != "<>" {
		return p.bytes()
	}
	return p.scalar(field, what, word, call)
}

// bytes reads the bytes of a constant: [ 1 0 0 0 ].
func (p *reportParser) bytes() error {
	err := p.expect("[")
	for err == nil {
		var word string
		if word, err = p.next(); err == nil && word != "]" {
			_, err = strconv.ParseInt(word, 10, 16)
		} else if err == nil {
			return nil
		}
	}
	return unreadable("a constant is not a list of bytes")
}

// list reads a list after its parenthesis: of nodes, of lists, of words, or of numbers after a letter.
func (p *reportParser) list(field string, what fieldKind) error {
	if err := p.enter(); err != nil {
		return err
	}
	for first := true; ; first = false {
		word, err := p.next()
		switch {
		case err != nil:
			return err
		case word == ")":
			p.depth--
			return nil
		case word == "" || word == "}":
			return unreadable("the list %s does not end", field)
		case what == otherField && !(first && word == "b"):
			return unreadable("%s is not known", field)
		case word == "{" && what == plainField:
			err = p.openNode(field)
		case word == "(" && what == plainField:
			err = p.list(field, what)
		case what == plainField || what == otherField || first && word == "o":
		default:
			err = p.scalar(field, what, word, nil)
		}
		if err != nil {
			return err
		}
	}
}

// scalar takes a value that is one word.
func (p *reportParser) scalar(field string, what fieldKind, word string, call *use) error {
	switch {
	case what == plainField:
		return nil
	case what == otherField && slices.Contains([]string{"<>", "false", "0", "-1", `""`}, word), what == constantField: // <>
		return nil
	case what == otherField:
		return unreadable("%s is not known", field)
	case what == commandField && (word == "1" && p.depth > 1 || word == "6" && p.depth == 1):
		return nil
	case (what == utilityField || what == typeField) && word == "<>":
		return nil
	case what == commandField || what == utilityField:
		return &refusedError{"the query must only read"}
	}
	n, err := strconv.ParseUint(word, 10, 32)
	switch id := uint32(n); {
	case err != nil:
		return unreadable("%s is not a number", field)
	case what == formatField && call != nil && (n == 1 || n == 2): // COERCE_EXPLICIT_CAST, COERCE_IMPLICIT_CAST
		call.kind = useCast
	case what == formatField && call != nil && (n == 0 || n == 3): // COERCE_EXPLICIT_CALL, COERCE_SQL_SYNTAX
	case what == formatField:
		return unreadable("%s is %d", field, n)
	case what == callField && call != nil:
		call.id = id
	case what == sessionField && n > 8: // after SVFOP_LOCALTIMESTAMP_N
		return &refusedError{"current_user, session_user, current_catalog, current_schema and the like are not supported"}
	case what == typeField && isRegistryTypeID(id), what == constantTypeField && isRegistryTypeID(id) && id != 3734 && id != 3769:
		return &refusedError{"types such as regclass, and aclitem, are not supported; write names as texts"}
	case what == sessionField || what == typeField || what == constantTypeField:
	case id != 0:
		p.uses = append(p.uses, use{useOf(what), id})
	}
	return nil
}
