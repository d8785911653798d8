package bench

import (
	"strings"
	"testing"
)

func TestOnly(t *testing.T) {
	t.Parallel()
	picked, err := Only("ingest, accept")
	if err != nil || len(picked) != 2 || picked[0].Name != "ingest" || picked[1].Name != "accept" {
		t.Errorf("%v, %v", picked, err)
	}
	if parts, err := Only("tenants, tenants:idle"); err != nil || len(parts) != len(tenants())+1 || parts[len(parts)-1].Name != "tenants:idle" {
		t.Errorf("%v, %v", parts, err)
	}
	if all, err := Only(""); err != nil || len(all) != len(Sections()) {
		t.Errorf("%d sections, %v", len(all), err)
	}
	if _, err := Only("accept,lunch"); err == nil || !strings.Contains(err.Error(), `"lunch"`) {
		t.Errorf("the error is %v", err)
	}
	seen := make(map[string]bool)
	for _, s := range Sections() {
		if seen[s.Name] || s.What == "" || s.Run == nil {
			t.Errorf("section %q is not unique or incomplete", s.Name)
		}
		seen[s.Name] = true
	}
}
