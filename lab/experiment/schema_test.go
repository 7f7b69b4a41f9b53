package experiment

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
	oracle "github.com/santhosh-tekuri/jsonschema/v6"

	"plait.dev/plait/internal/rung"
)

// update rewrites generated files and the expected output of tests instead of comparing.
var update = flag.Bool("update", false, "write generated and golden files")

// generateSchema makes the schema from the types and comments of spec.go.
func generateSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	r := &jsonschema.Reflector{Anonymous: true, ExpandedStruct: true, RequiredFromJSONSchemaTags: true}
	if err := r.AddGoComments(reflect.TypeFor[Spec]().PkgPath(), ".", jsonschema.WithFullComment()); err != nil {
		t.Fatal(err)
	}
	r.LookupComment = func(typ reflect.Type, name string) string {
		if name == "" {
			return strings.Join(strings.Fields(r.CommentMap[typ.PkgPath()+"."+typ.Name()]), " ")
		}
		field, _ := typ.FieldByName(name)
		key, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		return inFileTerms(r.CommentMap[typ.PkgPath()+"."+typ.Name()+"."+name], name, key)
	}
	return r.Reflect(&Spec{})
}

// inFileTerms makes a field's Go comment a description of its key: "RateMbps is the capacity" becomes "the capacity".
func inFileTerms(comment, name, key string) string {
	comment = strings.Join(strings.Fields(comment), " ")
	rest, ok := strings.CutPrefix(comment, name+" ")
	if !ok {
		return comment
	}
	for _, verb := range []string{"is ", "are "} {
		if said, ok := strings.CutPrefix(rest, verb); ok {
			return said
		}
	}
	return key + " " + rest
}

// checkGenerated compares a generated file with what it should be, or writes it.
func checkGenerated(t *testing.T, file string, want []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, want, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) {
		t.Errorf("%s is out of date; run go generate ./lab/experiment", file)
	}
}

func TestSchema(t *testing.T) {
	text, err := json.MarshalIndent(generateSchema(t), "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	checkGenerated(t, "schema.json", append(text, '\n'))
}

// TestSchemaAgainstLibrary spoils instances of plait's own experiments at random, and compares verdicts with a library's for all of JSON Schema.
func TestSchemaAgainstLibrary(t *testing.T) {
	document, err := oracle.UnmarshalJSON(bytes.NewReader(schemaJSON))
	if err != nil {
		t.Fatal(err)
	}
	compiler := oracle.NewCompiler()
	if err := compiler.AddResource("schema.json", document); err != nil {
		t.Fatal(err)
	}
	library := compiler.MustCompile("schema.json")
	r := rand.New(rand.NewPCG(1, 2))
	wrong, each := 0, rung.Times(40, 200)
	for _, file := range []string{"burst-grid.yaml", "egress-static.yaml", "stripe-silent.yaml"} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tree, problems := parseYAML(file, text)
		if len(problems) > 0 {
			t.Fatal(problems)
		}
		for range each {
			inst := instance(tree, fileSchema())
			for range 1 + r.IntN(3) {
				spoil(inst, r)
			}
			var found Problems
			validate(tree, inst, &found)
			err := library.Validate(inst)
			if (err != nil) != (len(found) > 0) {
				t.Fatalf("%s: %v; the library says %v", file, found, err)
			}
			if err != nil {
				wrong++
			}
		}
	}
	if wrong == 0 || wrong == 3*each {
		t.Errorf("%d of %d are wrong: that compares little", wrong, 3*each)
	}
}

// spoil changes something in a value, or below it.
func spoil(v any, r *rand.Rand) {
	values := []any{nil, -1, 0, 2.5, 1e7, true, "text", "6", "down", []any{}, []any{1}, map[string]any{}, map[string]any{"x": 1}}
	switch v := v.(type) {
	case map[string]any:
		keys := slices.Sorted(maps.Keys(v))
		switch k := r.IntN(12); {
		case k == 0:
			v["unknown"] = 1
		case len(keys) == 0:
		case k == 1:
			delete(v, keys[r.IntN(len(keys))])
		case k < 5:
			v[keys[r.IntN(len(keys))]] = values[r.IntN(len(values))]
		default:
			spoil(v[keys[r.IntN(len(keys))]], r)
		}
	case []any:
		if len(v) > 0 {
			if i := r.IntN(len(v)); r.IntN(3) == 0 {
				v[i] = values[r.IntN(len(values))]
			} else {
				spoil(v[i], r)
			}
		}
	}
}
