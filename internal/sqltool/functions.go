package sqltool

import (
	"fmt"
	"slices"
	"strings"
)

// checkFunctions refuses a PostgreSQL statement that calls a function which is not on the list, or that names one in
// a way that could be a call of it. Functions can read files, other tables and other sessions, and can connect.
func checkFunctions(all []token) error {
	for i, t := range all {
		switch {
		case t.kind == word && strings.HasPrefix(t.text, "reg") && slices.Contains(registryTypes(), t.text):
			return fmt.Errorf("the type %s is not supported", t.text)
		case t.kind == other || i+1 == len(all) || !all[i+1].is("("):
			continue
		case i > 0 && all[i-1].is("."):
			return fmt.Errorf("%s(…) has a schema; call functions by their name alone", t.text)
		case t.kind == word && isSyntax(t.text), i > 0 && all[i-1].is("as") && all[i-1].kind == word, isCTE(all, i):
			continue
		case !isAllowedFunction(t.text):
			return fmt.Errorf("%s(…) is not supported: it is no function that queries may call, or an alias with columns without AS before it", t.text)
		}
	}
	return nil
}

// isCTE reports whether the token at i begins a common table expression with columns, such as WITH RECURSIVE t(n) AS (SELECT …).
// A list of columns in FROM cannot be one: it does not begin with SELECT.
func isCTE(all []token, i int) bool {
	if i == 0 || !all[i-1].is("with") && !all[i-1].is("recursive") && !all[i-1].is(",") {
		return false
	}
	at := i + 2
	for at < len(all) && all[at].kind != other || at < len(all) && all[at].is(",") {
		at++
	}
	follows := func(text string) bool {
		if at < len(all) && all[at].is(text) {
			at++
			return true
		}
		return false
	}
	if !follows(")") || !follows("as") {
		return false
	}
	follows("not")
	follows("materialized")
	return follows("(") && (follows("select") || follows("with"))
}

// registryTypes are the types that say whether something exists, whatever the allow-list.
func registryTypes() []string {
	return []string{"regclass", "regproc", "regprocedure", "regoper", "regoperator", "regtype", "regrole", "regnamespace", "regconfig", "regdictionary", "regcollation"}
}

// isSyntax reports whether the keyword, without quotes and before a parenthesis, calls no function that is not on the list:
// the grammar has a meaning for it.
func isSyntax(keyword string) bool {
	return contains(` all analyze and any array as asc between bit by case cast char character coalesce columns cross cube current_time current_timestamp
 dec decimal default desc distinct else end except exclude exists extract filter first float following from full group grouping greatest groups having
 ilike in inner intersect interval is isnull join last lateral left like limit localtime localtimestamp materialized national natural nchar next not notnull
 null nullif numeric nulls offset on only or order outer over overlay partition passing path position preceding range recursive right rollup row rows
 select sets similar some substring symmetric table then time timestamp treat trim union using values varbit varchar varying when where window with within without
 xmlattributes xmlconcat xmlelement xmlforest xmltable `, keyword)
}

// isAllowedFunction reports whether queries may call the function, which reads and changes nothing but its arguments.
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
 json_value json_query json_exists json_scalar json_serialize json_array json_arrayagg json_objectagg json_table
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
