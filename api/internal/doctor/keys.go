package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// keys checks whether the workers have the keys of the api, if they need any. Without the api's settings, it can only
// find workers that have none.
func (x *examination) keys(ctx context.Context, alive []process) {
	var found []string
	for _, p := range alive {
		if p.KeyIDs == nil {
			continue
		}
		missing := slices.DeleteFunc(slices.Clone(x.keyIDs), func(id string) bool { return slices.Contains(*p.KeyIDs, id) })
		switch {
		case len(*p.KeyIDs) == 0:
			found = append(found, p.name+" has none")
		case len(missing) > 0:
			found = append(found, fmt.Sprintf("%s lacks %s", p.name, strings.Join(missing, ", ")))
		}
	}
	if len(found) == 0 {
		return
	}
	needed, err := x.Store.WorkersNeedKeys(ctx)
	if !x.couldNot("keys", err) && needed {
		x.add("keys", Warning, "Give the workers the CPF_CNPJ_KEYS of the api: they cannot sign the webhooks and decrypt the attachments of keys that they lack.",
			"Workers lack keys of CPF_CNPJ_KEYS: %s.", strings.Join(found, "; "))
	}
}
