package policy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits of rules.
const (
	MaxRule        = 4096   // bytes of the text of a rule
	MaxRulePattern = 500    // characters of a pattern of MATCHES
	MaxRuleInput   = 10_000 // characters of a text that MATCHES is applied to
	MaxRuleDigits  = 1000   // of a number, written without an exponent
)

// Rule is a condition on one field of a JSON object, such as the arguments of a tool call:
//
//	<field> [NOT] CONTAINS|STARTS_WITH|MATCHES|IN <value>
//
// The operators are written in upper case. Texts are compared with their case. The zero value is
// not valid; [ParseRule] returns rules.
type Rule struct {
	field   []string // names of members, and positions in arrays, from the outside in
	not     bool
	op      string
	text    string         // of CONTAINS and STARTS_WITH
	pattern *regexp.Regexp // of MATCHES
	list    []string       // of IN
}

// The operators of rules.
const (
	contains   = "CONTAINS"
	startsWith = "STARTS_WITH"
	matches    = "MATCHES"
	in         = "IN"
)

func operators() []string { return []string{contains, startsWith, matches, in} }

// ParseRule reads a rule. The field is a name such as query, or a path such as filter.owner or
// files.0.name. The value is the rest of the text: a JSON string such as "DROP TABLE", or a text
// without quotation marks; for IN a JSON list of strings, numbers and booleans; for MATCHES a
// regular expression in RE2 syntax, which may match anywhere.
func ParseRule(text string) (Rule, error) {
	if len(text) > MaxRule {
		return Rule{}, fmt.Errorf("the rule has more than %d bytes", MaxRule)
	}
	field, rest := nextWord(text)
	op, value := nextWord(rest)
	var r Rule
	if op == "NOT" {
		r.not = true
		op, value = nextWord(value)
	}
	if !regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`).MatchString(field) {
		return Rule{}, fmt.Errorf("%.80q is not a field; %s", field, ruleForm)
	}
	if !slices.Contains(operators(), op) {
		return Rule{}, fmt.Errorf("%.80q is not an operator; %s", op, ruleForm)
	}
	r.field, r.op = strings.Split(field, "."), op
	err := r.setValue(value)
	return r, err
}

const ruleForm = "want <field> [NOT] CONTAINS|STARTS_WITH|MATCHES|IN <value>"

// nextWord returns the text before the first space, and what comes after the spaces.
func nextWord(text string) (word, rest string) {
	word, rest, _ = strings.Cut(strings.Trim(text, " \t\r\n"), " ")
	return word, strings.TrimLeft(rest, " \t\r\n")
}

func (r *Rule) setValue(value string) error {
	if value == "" {
		return fmt.Errorf("the value after %s is missing; %s", r.op, ruleForm)
	}
	if r.op == in {
		return r.setList(value)
	}
	if value[0] == '"' {
		var text string
		if err := json.Unmarshal([]byte(value), &text); err != nil {
			return errors.New("the value after the operator begins with a quotation mark and is not a JSON string")
		}
		value = text
	}
	if value == "" { // every text contains it
		return fmt.Errorf("the value after %s is empty", r.op)
	}
	if r.op != matches {
		r.text = value
		return nil
	}
	if utf8.RuneCountInString(value) > MaxRulePattern {
		return fmt.Errorf("the pattern has more than %d characters", MaxRulePattern)
	}
	pattern, err := regexp.Compile(value)
	if err != nil {
		return fmt.Errorf("the value after MATCHES is not a regular expression of RE2: %w", err)
	}
	r.pattern = pattern
	return nil
}

func (r *Rule) setList(value string) error {
	var all []any
	d := json.NewDecoder(strings.NewReader(value))
	d.UseNumber()
	if err := d.Decode(&all); err != nil || d.InputOffset() != int64(len(value)) || len(all) == 0 {
		return errors.New(`the value after IN must be a JSON list that is not empty, such as ["a", "b"]`)
	}
	for _, one := range all {
		switch one := one.(type) {
		case string:
			r.list = append(r.list, one)
		case json.Number:
			text, err := decimal(one.String())
			if err != nil {
				return err
			}
			r.list = append(r.list, text)
		case bool:
			r.list = append(r.list, strconv.FormatBool(one))
		default:
			return errors.New("the list after IN must contain only strings, numbers and booleans")
		}
	}
	return nil
}

// Holds reports whether the condition is met by a JSON object. The value of the field is compared
// as text: a string is its characters, and any other value its JSON without spaces. Every number has
// one form: its digits without an exponent and without zeros that do not count, so 1, 1.0 and 10e-1
// are the same. A field that is missing or null meets no condition, and every one with NOT. The error
// says why the condition cannot be checked, for example because the text is too long for MATCHES or a
// number has more than [MaxRuleDigits] digits. The caller must then deny.
func (r Rule) Holds(object []byte) (bool, error) {
	text, found, err := fieldText(object, r.field)
	if err != nil {
		return false, err
	}
	held := false
	switch {
	case !found:
	case r.op == contains:
		held = strings.Contains(text, r.text)
	case r.op == startsWith:
		held = strings.HasPrefix(text, r.text)
	case r.op == in:
		held = slices.Contains(r.list, text)
	case utf8.RuneCountInString(text) > MaxRuleInput:
		return false, fmt.Errorf("the field %s has more than %d characters, and MATCHES checks no longer ones", strings.Join(r.field, "."), MaxRuleInput)
	default:
		held = r.pattern.MatchString(text)
	}
	return held != r.not, nil
}

// fieldText returns the text of the value at a path.
func fieldText(object []byte, path []string) (text string, found bool, err error) {
	var value any
	d := json.NewDecoder(bytes.NewReader(object))
	d.UseNumber()
	if err := d.Decode(&value); err != nil {
		return "", false, fmt.Errorf("the checked object is not valid JSON: %w", err)
	}
	if _, ok := value.(map[string]any); !ok {
		return "", false, errors.New("the checked value is not a JSON object")
	}
	for _, name := range path {
		value = inside(value, name)
	}
	switch value := value.(type) {
	case nil:
		return "", false, nil
	case string:
		return value, true, nil
	}
	if value, err = withDecimals(value); err != nil {
		return "", false, fmt.Errorf("the field %s: %w", strings.Join(path, "."), err)
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		return "", false, err
	}
	return strings.TrimSuffix(b.String(), "\n"), true, nil
}

// inside returns the member or the element with the name; nil = there is none.
func inside(value any, name string) any {
	switch value := value.(type) {
	case map[string]any:
		return value[name]
	case []any:
		if i, err := strconv.Atoi(name); err == nil && i >= 0 && i < len(value) {
			return value[i]
		}
	}
	return nil
}

// withDecimals returns a value whose numbers have their one form. It changes lists and objects in place.
func withDecimals(value any) (_ any, err error) {
	switch value := value.(type) {
	case json.Number:
		text, err := decimal(value.String())
		return json.Number(text), err
	case []any:
		for i := range value {
			if value[i], err = withDecimals(value[i]); err != nil {
				return nil, err
			}
		}
	case map[string]any:
		for name := range value {
			if value[name], err = withDecimals(value[name]); err != nil {
				return nil, err
			}
		}
	}
	return value, nil
}

// decimal returns the one form of a JSON number. It computes with text: a float64 would make different numbers equal.
func decimal(number string) (string, error) {
	tooLong := fmt.Errorf("a number has more than %d digits", MaxRuleDigits)
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	sign := ""
	if rest, negative := strings.CutPrefix(mantissa, "-"); negative {
		sign, mantissa = "-", rest
	}
	whole, fraction, _ := strings.Cut(mantissa, ".")
	digits := strings.TrimLeft(whole+fraction, "0")
	if digits == "" {
		return "0", nil
	}
	shift := 0 // of the point, to the right
	if exponent != "" {
		var err error
		if shift, err = strconv.Atoi(exponent); err != nil || shift > 1<<20 || shift < -1<<20 {
			return "", tooLong
		}
	}
	point := len(whole) + shift - (len(whole+fraction) - len(digits)) // digits before it
	digits = strings.TrimRight(digits, "0")
	if max(point, len(digits), len(digits)-point) > MaxRuleDigits {
		return "", tooLong
	}
	switch {
	case point <= 0:
		return sign + "0." + strings.Repeat("0", -point) + digits, nil
	case point >= len(digits):
		return sign + digits + strings.Repeat("0", point-len(digits)), nil
	}
	return sign + digits[:point] + "." + digits[point:], nil
}
