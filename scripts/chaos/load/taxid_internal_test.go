package load

import "testing"

func TestTaxID(t *testing.T) {
	if id := TaxID(982_247); id != "52998224725" {
		t.Errorf("TaxID(982247) = %s", id)
	}
	if id := written(982_247); id != "529.982.247-25" {
		t.Errorf("written(982247) = %s", id)
	}
}

func TestFindTaxID(t *testing.T) {
	for text, want := range map[string]bool{
		`{"cpf":"52998224725"}`:   true,
		"de 529.982.247-25, e":    true,
		"52998224724 52998224725": true,
		"52998224724":             false, // wrong check digit
		"1052998224725":           false, // within a longer number
		"152.998.224-72":          false,
	} {
		if at := FindTaxID([]byte(text)); (at != nil) != want {
			t.Errorf("%q: found at %v", text, at)
		}
	}
}
