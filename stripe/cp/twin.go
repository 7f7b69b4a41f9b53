package cp

import (
	"hash/maphash"
	"os"
	"path"
	"strings"
)

// siblings are the names that the walk has offered in each directory it is in, by depth: their hashes in upper case, for there may be a million. Two that are the same by chance
// matter to a receiver whose file system does not tell case apart, which does not keep the names of all there is, and to others not.
type siblings []map[uint64]struct{}

var foldedSeed = maphash.MakeSeed()

// again says whether a name that differs in case at most was offered in its directory before. The walk ends one directory before it begins the next.
func (s *siblings) again(name string) bool {
	depth := strings.Count(name, "/")
	for len(*s) <= depth {
		*s = append(*s, map[uint64]struct{}{})
	}
	*s = (*s)[:depth+1]
	at := (*s)[depth]
	folded := maphash.String(foldedSeed, strings.ToUpper(path.Base(name)))
	_, is := at[folded]
	at[folded] = struct{}{}
	return is
}

// isTwin reports whether an entry would take the place of another one, which has its name in other letters. Such a file system finds a part by its name in upper case, too.
func (rc *receiver) isTwin(e entry, to place) bool {
	if !e.Twin {
		return false
	}
	dir, err := rc.asking.of(to)
	if err != nil {
		return false
	}
	p, err := openPart(dir, to.base(), os.O_CREATE)
	if err != nil { // then nothing is written, either
		return false
	}
	_, err = dir.stat(strings.ToUpper(p.name))
	p.drop(false)
	return err == nil
}
