package sqltool

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// checkRegistryTypes refuses a PostgreSQL statement that names a type whose literals ask the catalogue: they are read
// while the statement is analysed, before the server reports what it does.
func checkRegistryTypes(all []token) error {
	for _, t := range all {
		if t.kind != other && slices.Contains(registryTypes(), strings.TrimLeft(t.text, "_")) { // _regclass is regclass[]
			return fmt.Errorf("the type %s is not supported", t.text)
		}
	}
	return nil
}

// registryTypes are the types that say whether something exists, whatever the allow-list.
func registryTypes() []string {
	return []string{"regclass", "regproc", "regprocedure", "regoper", "regoperator", "regtype", "regrole", "regnamespace", "regconfig", "regdictionary", "regcollation", "regdatabase", "aclitem"}
}

// isRegistryTypeID reports whether the id is that of a type of registryTypes, or of a list of them.
func isRegistryTypeID(id uint32) bool {
	return slices.Contains([]uint32{
		24, 1008, 2202, 2207, 2203, 2208, 2204, 2209, 2205, 2210, 2206, 2211, 4096, 4097, 4089, 4090, 3734, 3735, 3769, 3770, 4191, 4192, 1033, 1034,
	}, id)
}

// checkUses refuses a statement that uses a function or an operator that is not allowed. The server decides about names
// by the id: what it was created with is allowed if it is on a list, and so are the functions of some extensions.
func checkUses(ctx context.Context, conn *pgconn.PgConn, uses []use) error {
	var functions, operators []string
	for _, u := range uses {
		if id := strconv.FormatUint(uint64(u.id), 10); u.kind == useOperator {
			operators = append(operators, id)
		} else {
			functions = append(functions, id)
		}
	}
	// pg_proc is 1255, pg_operator 2617.
	found, err := query(ctx, conn, `SELECT 'f', p.oid, n.nspname, p.proname, x.extname,
		EXISTS (SELECT FROM pg_catalog.pg_operator o WHERE o.oprcode OPERATOR(pg_catalog.=) p.oid),
		EXISTS (SELECT FROM pg_catalog.pg_cast c WHERE c.castfunc OPERATOR(pg_catalog.=) p.oid)
		FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) p.pronamespace
		LEFT JOIN pg_catalog.pg_depend d ON d.classid OPERATOR(pg_catalog.=) 1255::pg_catalog.oid AND d.objid OPERATOR(pg_catalog.=) p.oid AND d.deptype OPERATOR(pg_catalog.=) 'e'
		LEFT JOIN pg_catalog.pg_extension x ON x.oid OPERATOR(pg_catalog.=) d.refobjid WHERE p.oid OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.oid[])
		UNION ALL SELECT 'o', o.oid, n.nspname, o.oprname, x.extname, true, false
		FROM pg_catalog.pg_operator o JOIN pg_catalog.pg_namespace n ON n.oid OPERATOR(pg_catalog.=) o.oprnamespace
		LEFT JOIN pg_catalog.pg_depend d ON d.classid OPERATOR(pg_catalog.=) 2617::pg_catalog.oid AND d.objid OPERATOR(pg_catalog.=) o.oid AND d.deptype OPERATOR(pg_catalog.=) 'e'
		LEFT JOIN pg_catalog.pg_extension x ON x.oid OPERATOR(pg_catalog.=) d.refobjid WHERE o.oid OPERATOR(pg_catalog.=) ANY ($2::pg_catalog.oid[])`,
		"{"+strings.Join(functions, ",")+"}", "{"+strings.Join(operators, ",")+"}")
	if err != nil {
		return err
	}
	known := map[string]object{}
	for _, f := range found {
		id, err := strconv.ParseUint(f[1], 10, 32)
		if err != nil {
			return err
		}
		known[f[0]+f[1]] = object{schema: f[2], name: f[3], builtin: f[2] == "pg_catalog" && id < firstNormalID, extension: f[4], operator: f[5] == "t", cast: f[6] == "t"}
	}
	for _, u := range uses {
		kind, prefix := "function", "f"
		if u.kind == useOperator {
			kind, prefix = "operator", "o"
		}
		o, ok := known[prefix+strconv.FormatUint(uint64(u.id), 10)]
		switch {
		case !ok:
			return errors.New("the server reports a function or an operator that it does not have")
		case !o.allowed(u.kind):
			return &refusedError{fmt.Sprintf("the %s %s is not one that queries may use; the owner of the database can put what it does into a view", kind, o)}
		}
	}
	return nil
}

// firstNormalID is the first id of what was created after the server was.
const firstNormalID = 16384

// object is a function or an operator of the server.
type object struct {
	schema, name string
	builtin      bool   // the server was created with it
	extension    string // to which it belongs; "" = none
	operator     bool   // it is an operator, or the function of one
	cast         bool   // it is the function of a cast
}

func (o object) String() string {
	if o.schema == "pg_catalog" {
		return o.name
	}
	return o.schema + "." + o.name
}

// allowed reports whether a statement may use the object in this way. Operators and casts that the server was created
// with have no effects.
func (o object) allowed(kind useKind) bool {
	if !o.builtin && !isAllowedExtension(o.extension) {
		return false
	}
	switch kind {
	case useCall:
		return isAllowedFunction(o.name)
	case useCast:
		return o.cast || isAllowedFunction(o.name)
	case useOperator, useFunction:
		return o.operator
	case useRange:
		return o.name == "in_range"
	case useSample:
		return o.builtin && (o.name == "bernoulli" || o.name == "system")
	}
	return false
}

// isAllowedExtension reports whether the operators, the casts and the functions on the list of an extension are allowed:
// they read and change nothing but their arguments.
func isAllowedExtension(name string) bool {
	return contains(` citext cube earthdistance fuzzystrmatch hstore intarray isn ltree pg_trgm postgis seg unaccent vector `, name)
}

// isAllowedFunction reports whether queries may call the functions with this name, if the server was created with them or
// one of the extensions has them: they read and change nothing but their arguments, or tell the time.
func isAllowedFunction(name string) bool {
	return contains(` abs ceil ceiling floor round trunc sign sqrt cbrt exp ln log log10 power pow mod div gcd lcm factorial degrees radians pi random width_bucket scale min_scale trim_scale
 acos acosd asin asind atan atand atan2 atan2d cos cosd cot cotd sin sind tan tand sinh cosh tanh asinh acosh atanh
 count sum avg min max bool_and bool_or every string_agg array_agg json_agg jsonb_agg json_object_agg jsonb_object_agg json_agg_strict jsonb_agg_strict
 json_object_agg_strict jsonb_object_agg_strict json_object_agg_unique jsonb_object_agg_unique bit_and bit_or bit_xor range_agg range_intersect_agg xmlagg any_value
 corr covar_pop covar_samp regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy stddev stddev_pop stddev_samp variance var_pop var_samp
 mode percentile_cont percentile_disc rank dense_rank percent_rank cume_dist row_number ntile lag lead first_value last_value nth_value
 ascii btrim bit_length char_length character_length chr concat concat_ws format initcap left length lower lpad ltrim md5 octet_length quote_ident quote_literal quote_nullable
 regexp_count regexp_instr regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table regexp_substr repeat replace reverse right rpad rtrim
 split_part starts_with string_to_array string_to_table strpos substr substring to_ascii to_hex translate unistr upper normalize sha224 sha256 sha384 sha512 encode decode convert_from convert_to
 get_bit get_byte set_bit set_byte bit_count parse_ident casefold
 to_char to_date to_number to_timestamp age clock_timestamp date_bin date_part date_trunc isfinite justify_days justify_hours justify_interval make_date make_interval make_time
 make_timestamp make_timestamptz now statement_timestamp timeofday transaction_timestamp timezone date_add date_subtract overlaps
 date time timetz timestamptz text int2 int4 int8 float4 float8 bool bpchar name uuid json jsonb inet cidr money bytea
 array_append array_cat array_dims array_fill array_length array_lower array_ndims array_position array_positions array_prepend array_remove array_replace array_sample array_shuffle
 array_to_string array_upper cardinality trim_array unnest generate_series generate_subscripts array_reverse array_sort
 to_json to_jsonb array_to_json row_to_json json_build_array jsonb_build_array json_build_object jsonb_build_object json_object jsonb_object json_array_elements jsonb_array_elements
 json_array_elements_text jsonb_array_elements_text json_array_length jsonb_array_length json_each jsonb_each json_each_text jsonb_each_text json_extract_path jsonb_extract_path
 json_extract_path_text jsonb_extract_path_text json_object_keys jsonb_object_keys json_populate_record jsonb_populate_record json_populate_recordset jsonb_populate_recordset
 json_to_record jsonb_to_record json_to_recordset jsonb_to_recordset json_strip_nulls jsonb_strip_nulls jsonb_set jsonb_set_lax jsonb_insert json_typeof jsonb_typeof jsonb_pretty
 jsonb_path_exists jsonb_path_match jsonb_path_query jsonb_path_query_array jsonb_path_query_first jsonb_path_exists_tz jsonb_path_match_tz jsonb_path_query_tz jsonb_path_query_array_tz jsonb_path_query_first_tz
 json_object_agg_unique_strict jsonb_object_agg_unique_strict extract overlay position like_escape similar_escape similar_to_escape xmlexists is_normalized
 gen_random_uuid uuidv4 uuidv7 uuid_extract_timestamp uuid_extract_version
 lower_inc upper_inc lower_inf upper_inf isempty range_merge multirange int4range int8range numrange tsrange tstzrange daterange
 area box circle center diagonal diameter height isclosed isopen isparallel isperp ishorizontal isvertical line lseg npoints path point polygon popen pclose radius slope width bound_box
 host hostmask family masklen netmask network set_masklen abbrev broadcast inet_same_family inet_merge macaddr8_set7bit
 to_tsvector to_tsquery plainto_tsquery phraseto_tsquery websearch_to_tsquery ts_rank ts_rank_cd ts_headline ts_delete ts_filter tsvector_to_array array_to_tsvector setweight strip numnode querytree tsquery_phrase
 num_nulls num_nonnulls enum_first enum_last enum_range xpath xpath_exists xmlcomment xml_is_well_formed hashtext
 similarity word_similarity strict_word_similarity show_trgm unaccent levenshtein levenshtein_less_equal soundex metaphone difference
 cosine_distance l2_distance inner_product l1_distance vector_dims vector_norm `, name)
}

// contains reports whether the word is in the list of words with spaces around each.
func contains(list, word string) bool {
	return word != "" && !strings.ContainsAny(word, " \n") && (strings.Contains(list, " "+word+" ") || strings.Contains(list, " "+word+"\n"))
}
