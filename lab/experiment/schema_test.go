package experiment

import (
	"encoding/json"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"
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
