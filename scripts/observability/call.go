package observability

import "fmt"

// functions of PromQL that are used here, with what each argument must be.
var functions = map[string][]result{
	"rate":               {window},
	"increase":           {window},
	"min_over_time":      {window},
	"max_over_time":      {window},
	"absent":             {instant},
	"clamp_min":          {instant, scalar},
	"histogram_quantile": {scalar, instant},
	"vector":             {scalar},
}

// aggregations make one series of several.
var aggregations = []string{"sum", "min", "max", "avg", "count"}

func (p *reader) call(function string) (result, error) {
	if err := p.want("("); err != nil {
		return 0, err
	}
	for i, wanted := range functions[function] {
		if i > 0 {
			if err := p.want(","); err != nil {
				return 0, err
			}
		}
		got, err := p.expression(0)
		if err != nil {
			return 0, err
		}
		if got != wanted {
			return 0, fmt.Errorf("argument %d of %s is of the wrong kind: with [5m] where a stretch of time is wanted, without elsewhere", i+1, function)
		}
	}
	return instant, p.want(")")
}

// aggregation reads sum by (a, b) (…), with the labels before or behind.
func (p *reader) aggregation(function string) (result, error) {
	before, err := p.grouping()
	if err != nil {
		return 0, err
	}
	// Labels behind are known only later: what was found inside gets them then.
	from, outer := len(p.found), p.grouped
	p.grouped = append(append([]string(nil), outer...), before...)
	defer func() { p.grouped = outer }()
	if err := p.want("("); err != nil {
		return 0, err
	}
	inner, err := p.expression(0)
	if err != nil {
		return 0, err
	}
	if inner != instant {
		return 0, fmt.Errorf("%s is of something else than series", function)
	}
	if err := p.want(")"); err != nil {
		return 0, err
	}
	behind, err := p.grouping()
	for i := from; i < len(p.found); i++ {
		p.found[i].Grouped = append(p.found[i].Grouped, behind...)
	}
	return instant, err
}

// grouping reads by (a, b), if it comes next. le belongs to every histogram, and is left
// out.
func (p *reader) grouping() (labels []string, err error) {
	if !p.is("by") {
		return nil, nil
	}
	if err := p.want("("); err != nil {
		return nil, err
	}
	for !p.is(")") {
		label := p.next()
		if label.kind != name {
			return nil, fmt.Errorf("%q is no label", label.text)
		}
		if label.text != "le" {
			labels = append(labels, label.text)
		}
		if !p.is(",") && p.peek().text != ")" {
			return nil, fmt.Errorf("%q expected before %q", ")", p.peek().text)
		}
	}
	return labels, nil
}
