package openapitest

import (
	"fmt"
	"testing"
)

// TestBreaks: what a client of the released API relies on may not go, and no request may need more.
func TestBreaks(t *testing.T) {
	describe := func(required, properties, replies string) []byte {
		return fmt.Appendf(nil, `{"paths":{"/v1/a":{"post":{"parameters":[{"in":"query","name":"q","schema":{"type":"string"}}],
			"requestBody":{"content":{"application/json":{"schema":{"type":"object","required":[%s],"properties":{%s}}}}},
			"responses":{"200":{"content":{"application/json":{"schema":{"$ref":"#/components/schemas/R"}}}},"400":{}}}}},
			"components":{"schemas":{"R":{"type":"object","properties":{%s}}}}}`, required, properties, replies)
	}
	base := describe(`"n"`, `"n":{"type":"integer"},"m":{"enum":["x","y"]}`, `"out":{"type":["integer","null"]},"list":{"type":"array","items":{"oneOf":[{"type":"string"}]}}`)
	for _, c := range []struct {
		now  []byte
		want string
	}{
		{base, "[]"},
		{describe(``, `"n":{"type":["integer","string"]},"m":{"enum":["x","y","z"]},"o":{"type":"integer"}`,
			`"out":{"type":["integer","null"]},"list":{"type":"array","items":{"type":"string"}},"more":{"type":"string"}`), "[]"},
		{describe(`"n","m"`, `"n":{"type":"integer"},"m":{"enum":["x"]}`, `"out":{"type":["integer","null"]},"list":{"type":"array","items":{"type":"string"}}`),
			"[gone: takes POST /v1/a body m: y new: needs POST /v1/a body m]"},
		{describe(`"n"`, `"n":{"type":"integer"},"m":{"enum":["x","y"]}`, `"out":{"type":["integer","null","string"]}`),
			"[gone: gives R list []: string gone: gives R list: array new: gives R out: string]"},
		{[]byte(`{"paths":{"/v1/a":{"get":{"responses":{}}}}}`), "[gone: gives POST /v1/a 200 gone: gives POST /v1/a 200: R gone: gives R list []: string gone: gives R list: array " +
			"gone: gives R out: integer gone: gives R out: null gone: gives R: object gone: route POST /v1/a gone: takes POST /v1/a body m: x gone: takes POST /v1/a body m: y " +
			"gone: takes POST /v1/a body n: integer gone: takes POST /v1/a body: object gone: takes POST /v1/a query q: string]"},
	} {
		released, err := Surface(base)
		if err != nil {
			t.Fatal(err)
		}
		now, err := Surface(c.now)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(Breaks(released, now)); got != c.want {
			t.Errorf("%s\nwanted %s", got, c.want)
		}
	}
	if _, err := Surface([]byte("{")); err == nil {
		t.Error("half a description is read")
	}
}
