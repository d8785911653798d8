package store_test

import (
	"slices"
	"strconv"
)

// companyColumns are the attribute numbers of company_id in the tables that have one, by the
// table's oid.
type companyColumns map[string]int

// Numbers of Postgres's own enumerations.
const (
	commandInsert  = 3
	rangeTable     = 0
	joinInner      = 0
	joinLeft       = 1
	joinRight      = 3
	conflictUpdate = 2
)

// unbound lists the tables of a query, with those of its subqueries and CTEs, of which rows
// are read, locked or changed whatever company they are of: each by its oid and the name
// that it has in the query. An INSERT must write company_id; with ON CONFLICT DO UPDATE, the company_id of the existing
// row must be a condition.
func (c companyColumns) unbound(tree *node) []string {
	var found []string
	tree.each(func(n *node) bool {
		if n.tag == "QUERY" {
			found = append(found, c.unboundIn(n)...)
		}
		return true
	})
	slices.Sort(found)
	return found
}

func (c companyColumns) unboundIn(query *node) []string {
	tables := query.items("rtable")
	bound := map[int]bool{} // by number of the table in the query, from 1
	var open []int
	insertInto, excluded := 0, query.one("onConflict").number("exclRelIndex")
	if query.number("commandType") == commandInsert {
		insertInto = query.number("resultRelation")
	}
	for i, table := range tables {
		switch n := i + 1; {
		case n == excluded || table.number("rtekind") != rangeTable || c[table.one("relid").atom] == 0:
		case n == insertInto:
			bound[n] = c.writes(query, table) && c.matchesOwn(query, table, n)
			open = append(open, n)
		default:
			open = append(open, n)
		}
	}
	if len(open) == 0 {
		return nil
	}
	// A table that is compared with another one is as good as that one.
	equalities := c.equalities(query)
	for changed := true; changed; {
		changed = false
		for _, e := range equalities {
			if !bound[e.table] && (e.with == 0 || bound[e.with]) {
				bound[e.table], changed = true, true
			}
		}
	}
	var found []string
	for _, n := range open {
		if !bound[n] {
			found = append(found, tables[n-1].one("relid").atom+" "+tables[n-1].one("eref").one("aliasname").atom)
		}
	}
	return found
}

// writes reports whether an INSERT gives company_id a value.
func (c companyColumns) writes(query, table *node) bool {
	for _, target := range query.items("targetList") {
		if target.number("resno") == c[table.one("relid").atom] {
			value := target.one("expr")
			return value.tag != "CONST" || value.one("constisnull").atom != "true"
		}
	}
	return false
}

// matchesOwn reports whether an INSERT changes no existing row, or only one of the same
// company: by the unique columns that it conflicts on, or in the WHERE of DO UPDATE.
func (c companyColumns) matchesOwn(query, table *node, number int) bool {
	conflict := query.one("onConflict")
	if conflict.tag == "" || conflict.number("action") != conflictUpdate {
		return true
	}
	for _, element := range conflict.items("arbiterElems") {
		if v := element.one("expr"); v.tag == "VAR" && v.number("varattno") == c[table.one("relid").atom] {
			return true
		}
	}
	for _, e := range c.conditions(query, conflict.one("onConflictWhere"), nil) {
		if e.table == number {
			return true
		}
	}
	return false
}

// equality means that a table's company_id equals another table's; with 0, that it equals a value.
type equality struct{ table, with int }

// equalities are those that hold for every row of the query.
func (c companyColumns) equalities(query *node) []equality {
	return c.joined(query, query.one("jointree"))
}

// joined walks FROM and WHERE. A condition in the ON of an outer join restricts only
// the side of it that may be missing.
func (c companyColumns) joined(query, n *node) []equality {
	var all []equality
	switch n.tag {
	case "FROMEXPR":
		for _, part := range n.items("fromlist") {
			all = append(all, c.joined(query, part)...)
		}
		all = append(all, c.conditions(query, n.one("quals"), nil)...)
	case "JOINEXPR":
		left, right := n.one("larg"), n.one("rarg")
		all = append(c.joined(query, left), c.joined(query, right)...)
		var side []int
		switch n.number("jointype") {
		case joinInner:
		case joinLeft:
			side = tablesIn(right)
		case joinRight:
			side = tablesIn(left)
		default:
			return all
		}
		all = append(all, c.conditions(query, n.one("quals"), side)...)
	}
	return all
}

func tablesIn(n *node) []int {
	numbers := []int{}
	n.each(func(n *node) bool {
		if n.tag == "RANGETBLREF" {
			numbers = append(numbers, n.number("rtindex"))
		}
		return true
	})
	return numbers
}

// conditions are all equalities that a condition requires: an operand of OR or NOT requires
// none. only names the tables that the condition restricts; nil = all.
func (c companyColumns) conditions(query, n *node, only []int) []equality {
	switch n.tag {
	case "BOOLEXPR":
		if n.one("boolop").atom != "and" {
			return nil
		}
		var all []equality
		for _, part := range n.items("args") {
			all = append(all, c.conditions(query, part, only)...)
		}
		return all
	case "BOOLEANTEST":
		if n.number("booltesttype") == 0 { // IS TRUE
			return c.conditions(query, n.one("arg"), only)
		}
	case "SUBLINK":
		return c.conditions(query, n.one("testexpr"), only)
	case "OPEXPR", "SCALARARRAYOPEXPR":
		if !equals[n.one("opno").atom] || len(n.items("args")) != 2 || n.one("useOr").atom == "false" {
			return nil
		}
		a, b := c.companyOf(query, n.items("args")[0]), c.companyOf(query, n.items("args")[1])
		var all []equality
		for _, e := range []equality{{a, b}, {b, a}} {
			if e.table != 0 && (only == nil || slices.Contains(only, e.table)) {
				all = append(all, e)
			}
		}
		return all
	}
	return nil
}

// equals are the operators "=" between uuids.
var equals = map[string]bool{"2972": true}

// companyOf is the table whose company_id the expression is; 0 if it is something else: a
// parameter, or a column of a CTE or of the query around, which are looked at for themselves.
func (c companyColumns) companyOf(query, n *node) int {
	if n.tag != "VAR" || n.number("varlevelsup") != 0 {
		return 0
	}
	tables := query.items("rtable")
	number := n.number("varno")
	if number < 1 || number > len(tables) {
		return 0
	}
	if at := c[tables[number-1].one("relid").atom]; at == 0 || strconv.Itoa(at) != n.one("varattno").atom || tables[number-1].number("rtekind") != rangeTable {
		return 0
	}
	return number
}
