package check

import "encoding/json"

// difference is an error as JSON: a number, or the word that the table prints for what is none, "NaN" or "other size". It is not
// null, which is below any tolerance in JavaScript and jq; Python's float reads "NaN".
type difference float64

// MarshalJSON writes it.
func (d difference) MarshalJSON() ([]byte, error) {
	if !numeric(float64(d)) {
		return json.Marshal(figure(float64(d)))
	}
	return json.Marshal(float64(d))
}

// MarshalJSON writes the public fields.
func (r *Report) MarshalJSON() ([]byte, error) {
	curves := map[string]difference{}
	for name, e := range r.Curves {
		curves[name] = difference(e)
	}
	return json.Marshal(struct {
		OK        bool                  `json:"ok"`
		Out       difference            `json:"out"`
		Loss      difference            `json:"loss"`
		GradMax   difference            `json:"grad_max"`
		Unmatched []string              `json:"unmatched"`
		Curves    map[string]difference `json:"curves"`
		Seconds   float64               `json:"seconds"`
		Simulated bool                  `json:"simulated,omitempty"`
		Warnings  []string              `json:"warnings,omitempty"`
	}{r.OK, difference(r.Out), difference(r.Loss), difference(r.GradMax), r.Unmatched, curves, r.Seconds, r.Simulated, r.Warnings})
}
