package cp

import (
	"os"
	"path"
	"strings"
)

// siblings are the names that the walk has offered in each directory it is in, by depth, in upper case. The receiver, which may have a file system that does not tell case apart,
// does not keep the names of all there is.
type siblings []map[string]bool

// again says whether a name that differs in case at most was offered in its directory before. The walk ends one directory before it begins the next.
func (s *siblings) again(name string) bool {
	depth := strings.Count(name, "/")
	for len(*s) <= depth {
		*s = append(*s, map[string]bool{})
	}
	*s = (*s)[:depth+1]
	at := (*s)[depth]
	folded := strings.ToUpper(path.Base(name))
	is := at[folded]
	at[folded] = true
	return is
}

// isTwin reports whether an entry would take the place of another one, which has its name in other letters. Such a file system finds a part by its name in upper case, too.
func (rc *receiver) isTwin(e entry, name string) bool {
	if !e.Twin {
		return false
	}
	dir, err := rc.asking.of(rc.root, name)
	if err != nil {
		return false
	}
	p, err := openPart(dir, path.Base(name), os.O_CREATE)
	if err != nil { // then nothing is written, either
		return false
	}
	_, err = dir.stat(strings.ToUpper(p.name))
	p.drop(false)
	return err == nil
}
