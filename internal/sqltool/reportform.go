package sqltool

// fieldKind says what the value of a field of a report is.
type fieldKind int

const (
	otherField        fieldKind = iota // not known: it must be empty
	plainField                         // nodes, names, numbers and types that call nothing
	constantField                      // a constant
	commandField                       // whether a statement reads
	utilityField                       // a statement that is not a query, and locks
	callField                          // a function
	formatField                        // whether the function is called, or is a cast
	sessionField                       // what current_date and current_user are
	typeField                          // the type that something is made into
	constantTypeField                  // the type of a constant
	operatorField
	operatorFunctionField
	rangeField
	sampleField
)

// useOf returns the kind of use that a field names.
func useOf(f fieldKind) useKind {
	switch f {
	case operatorField:
		return useOperator
	case operatorFunctionField:
		return useFunction
	case rangeField:
		return useRange
	case sampleField:
		return useSample
	}
	return useCall
}

// fieldOf returns what a field is. Its full name contains the node.
func fieldOf(node, full string) fieldKind {
	switch full {
	case "CONST.constvalue":
		return constantField
	case "CONST.consttype":
		return constantTypeField
	case "QUERY.commandType":
		return commandField
	case "QUERY.utilityStmt", "QUERY.rowMarks":
		return utilityField
	case "FUNCEXPR.funcid", "AGGREF.aggfnoid", "WINDOWFUNC.winfnoid":
		return callField
	case "FUNCEXPR.funcformat":
		return formatField
	case "SQLVALUEFUNCTION.op":
		return sessionField
	case "FUNCEXPR.funcresulttype", "RELABELTYPE.resulttype", "COERCEVIAIO.resulttype", "ARRAYCOERCEEXPR.resulttype", "JSONRETURNING.typid",
		"TABLEFUNC.coltypes", "RANGETBLFUNCTION.funccoltypes":
		return typeField
	case "OPEXPR.opno", "DISTINCTEXPR.opno", "NULLIFEXPR.opno", "SCALARARRAYOPEXPR.opno", "ROWCOMPAREEXPR.opnos", "ROWCOMPARE.opnos",
		"SORTGROUPCLAUSE.eqop", "SORTGROUPCLAUSE.sortop", "CTECYCLECLAUSE.cycle_mark_neop":
		return operatorField
	case "OPEXPR.opfuncid", "DISTINCTEXPR.opfuncid", "NULLIFEXPR.opfuncid", "SCALARARRAYOPEXPR.opfuncid":
		return operatorFunctionField
	case "WINDOWCLAUSE.startInRangeFunc", "WINDOWCLAUSE.endInRangeFunc":
		return rangeField
	case "TABLESAMPLECLAUSE.tsmhandler":
		return sampleField
	}
	field := full[len(node)+1:]
	if contains(plainFields, field) {
		return plainField
	}
	return otherField
}

// isKnownNode reports whether a node of a statement that reads is known. Some have other names in older versions.
func isKnownNode(name string) bool {
	return contains(` QUERY DECLARECURSORSTMT DECLARECURSOR RANGETBLENTRY RTE RTEPERMISSIONINFO ALIAS RANGETBLREF JOINEXPR FROMEXPR TARGETENTRY RANGETBLFUNCTION TABLEFUNC
 TABLESAMPLECLAUSE COMMONTABLEEXPR CTESEARCHCLAUSE CTECYCLECLAUSE SETOPERATIONSTMT SORTGROUPCLAUSE GROUPINGSET WINDOWCLAUSE
 VAR CONST PARAM AGGREF GROUPINGFUNC WINDOWFUNC SUBSCRIPTINGREF FUNCEXPR NAMEDARGEXPR OPEXPR DISTINCTEXPR NULLIFEXPR SCALARARRAYOPEXPR BOOLEXPR SUBLINK
 FIELDSELECT RELABELTYPE COERCEVIAIO ARRAYCOERCEEXPR CONVERTROWTYPEEXPR COLLATEEXPR CASEEXPR CASE CASEWHEN WHEN CASETESTEXPR ARRAYEXPR ARRAY ROWEXPR ROW
 ROWCOMPAREEXPR ROWCOMPARE COALESCEEXPR COALESCE MINMAXEXPR MINMAX SQLVALUEFUNCTION XMLEXPR NULLTEST BOOLEANTEST COERCETODOMAIN COERCETODOMAINVALUE
 JSONFORMAT JSONRETURNING JSONVALUEEXPR JSONCONSTRUCTOREXPR JSONISPREDICATE JSONEXPR JSONBEHAVIOR JSONTABLEPATH JSONTABLEPATHSCAN JSONTABLESIBLINGJOIN `, name)
}

// plainFields are the fields that call nothing.
const plainFields = ` querySource canSetTag resultRelation hasAggs hasWindowFuncs hasTargetSRFs hasSubLinks hasDistinctOn hasRecursive hasModifyingCTE hasForUpdate
 hasRowSecurity hasGroupRTE isReturn cteList rtable rteperminfos jointree targetList override groupClause groupDistinct groupingSets havingQual windowClause
 distinctClause sortClause limitOffset limitCount limitOption setOperations constraintDeps stmt_location stmt_len portalname options query
 alias eref rtekind relid relkind rellockmode perminfoindex tablesample subquery security_barrier jointype joinmergedcols joinaliasvars joinleftcols joinrightcols
 join_using_alias functions funcordinality tablefunc values_lists ctename ctelevelsup self_reference coltypes coltypmods colcollations enrname enrtuples groupexprs
 lateral inh inFromCl requiredPerms checkAsUser selectedCols insertedCols updatedCols extraUpdatedCols securityQuals
 aliasname colnames rtindex isNatural larg rarg usingClause quals fromlist expr resno resname ressortgroupref resorigtbl resorigcol resjunk
 funcexpr funccolcount funccolnames funccoltypmods funccolcollations funcparams
 functype ns_uris ns_names docexpr rowexpr colexprs coldefexprs colvalexprs passingvalexprs notnulls plan ordinalitycol args repeatable
 aliascolnames ctematerialized ctequery search_clause cycle_clause cterecursive cterefcount ctecolnames ctecoltypes ctecoltypmods ctecolcollations
 search_col_list search_breadth_first search_seq_column cycle_col_list cycle_mark_column cycle_mark_value cycle_mark_default cycle_path_column cycle_mark_type
 cycle_mark_typmod cycle_mark_collation op all colTypes colTypmods colCollations groupClauses tleSortGroupRef reverse_sort nulls_first hashable kind content
 name refname partitionClause orderClause frameOptions startOffset endOffset inRangeColl inRangeAsc inRangeNullsFirst winref copiedOrder
 varno varattno vartype vartypmod varcollid varnullingrels varlevelsup varreturningtype varnosyn varattnosyn varnoold varoattno location
 consttypmod constcollid constlen constbyval constisnull paramkind paramid paramtype paramtypmod paramcollid
 aggtype aggcollid inputcollid aggtranstype aggargtypes aggdirectargs aggorder aggdistinct aggfilter aggstar aggvariadic aggkind aggpresorted agglevelsup aggsplit aggno
 aggtransno refs cols wintype wincollid winstar winagg refcontainertype refelemtype refrestype reftypmod refcollid refupperindexpr reflowerindexpr refexpr
 funcretset funcvariadic funccollid arg argnumber opresulttype opretset opcollid useOr boolop subLinkType subLinkId testexpr operName subselect
 fieldnum resulttype resulttypmod resultcollid relabelformat coerceformat elemexpr convertformat collOid casetype casecollid defresult result typeId typeMod collation
 array_typeid array_collid element_typeid elements multidims list_start list_end row_typeid row_format rctype cmptype opfamilies inputcollids largs rargs
 coalescetype coalescecollid minmaxtype minmaxcollid type typmod named_args arg_names xmloption indent nulltesttype argisrow booltesttype coercionformat
 format_type encoding format raw_expr formatted_expr func coercion returning absent_on_null unique item_type unique_keys column_name path_spec passing_names passing_values
 on_empty on_error use_io_coercion use_json_coercion wrapper omit_quotes btype coerce value path errorOnError child colMin colMax lplan rplan `
