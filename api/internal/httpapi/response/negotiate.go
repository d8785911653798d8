package response

import (
	"mime"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
)

// Negotiate returns the offered media type that the client prefers by its header Accept, or "" if it accepts none (RFC
// 9110, section 12.5.1). A client without the header accepts all. The order of the header decides between equal
// weights, then the order of the offers. Other parameters than the weight do not count: clients write ;charset=utf-8.
//
// gin's NegotiateFormat ignores weights, and goautoneg, which Prometheus uses, sends what has the weight 0.
func Negotiate(c *gin.Context, offered ...string) string {
	header := strings.Join(c.Request.Header.Values("Accept"), ",")
	if strings.TrimSpace(header) == "" {
		return offered[0]
	}
	best := make([]match, len(offered))
	position := 0
	for text := range strings.SplitSeq(header, ",") {
		accepted, parameters, err := mime.ParseMediaType(text)
		weight := 1.0
		if q, given := parameters["q"]; given && err == nil {
			weight, err = strconv.ParseFloat(q, 64)
		}
		if err != nil || !(weight >= 0 && weight <= 1) {
			continue
		}
		position++
		for i, offer := range offered {
			if exactness := exactnessOf(accepted, offer); exactness > best[i].exactness {
				best[i] = match{exactness, weight, position}
			}
		}
	}
	chosen := match{}
	name := ""
	for i, m := range best {
		if m.weight > chosen.weight || m.weight > 0 && m.weight == chosen.weight && m.position < chosen.position {
			chosen, name = m, offered[i]
		}
	}
	return name
}

// match is the most exact range of the header that a media type is in.
type match struct {
	exactness int // 0 = none
	weight    float64
	position  int
}

// exactnessOf returns 3 for the media type itself, 2 for type/*, 1 for */* and 0 for a range that does not contain it.
func exactnessOf(accepted, offer string) int {
	group, _, _ := strings.Cut(offer, "/")
	switch accepted {
	case offer:
		return 3
	case group + "/*":
		return 2
	case "*/*":
		return 1
	}
	return 0
}
