package experiment

import (
	"embed"
	"io/fs"
	"path"
	"strings"
)

//go:embed *.yaml topology/*.yaml trace/*
var embedded embed.FS

// Info is an entry of the list of experiments or topologies.
type Info struct {
	Name     string
	Group    string
	Question string
}

// List is the experiments in the binary, by name.
func List() []Info { return list("*.yaml") }

// Topologies is the topologies in the binary, by name; Question holds what the file says about itself.
func Topologies() []Info { return list("topology/*.yaml") }

func list(pattern string) []Info {
	files, _ := fs.Glob(embedded, pattern) // sorted; fails only for a malformed pattern
	infos := make([]Info, 0, len(files))
	for _, file := range files {
		text, err := embedded.ReadFile(file)
		if err != nil {
			continue
		}
		info := Info{Name: strings.TrimSuffix(path.Base(file), ".yaml")}
		if root, problems := parseYAML(file, text); len(problems) == 0 {
			info.Group, info.Question = root.string("group"), root.string("question")
			if info.Question == "" {
				info.Question = strings.Join(strings.Fields(root.string("about")), " ")
			}
		}
		infos = append(infos, info)
	}
	return infos
}

func names(infos []Info) []string {
	list := make([]string, len(infos))
	for i, info := range infos {
		list[i] = info.Name
	}
	return list
}
