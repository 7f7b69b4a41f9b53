package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"plait.dev/plait/egress/bgp"
)

// AOKey is a key of TCP-AO, whose secret is in a file.
type AOKey struct {
	File string
	bgp.AOKey
}

func (r Reflector) password() (string, error) {
	password, err := secret(fmt.Sprint("password for reflector ", r.Address), r.PasswordFile)
	return password, advised(err, r.PasswordFile)
}

// secrets are the keys of TCP-AO, with what is in their files.
func (r Reflector) secrets() (out []bgp.AOKey, err error) {
	for _, k := range r.AOKeys {
		if k.Key, err = secret(fmt.Sprint("TCP-AO key for reflector ", r.Address), k.File); err != nil {
			return nil, advised(err, k.File)
		}
		out = append(out, k.AOKey)
	}
	return out, nil
}

// secret is the first line of a file; no file, no secret.
func secret(what, file string) (string, error) {
	if file == "" {
		return "", nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("read the %s: %w", what, err)
	}
	line, _, _ := strings.Cut(string(b), "\n")
	line = strings.TrimSuffix(line, "\r") // of a file that came from Windows: nobody sees it, and the session does not come up
	if line == "" || len(line) > 80 {
		return "", fmt.Errorf("read the %s: %s: expected 1 to 80 bytes in its first line", what, file)
	}
	return line, nil
}

func advised(err error, file string) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w; %s", err, unitReads(file))
	}
	return err
}

// unitReads is how the package's unit comes to read a file: root without special rights, who sees nothing in users' directories.
func unitReads(file string) string {
	return fmt.Sprintf("root must be able to read it without special rights: keep it outside /root and /home, chown root %s, chmod u+r %[1]s", file)
}

// unitCannotRead says whether that is lacking.
func unitCannotRead(file string) bool {
	if at, err := filepath.EvalSymlinks(file); err == nil && (strings.HasPrefix(at, "/root/") || strings.HasPrefix(at, "/home/")) {
		return true
	}
	var s unix.Stat_t
	if unix.Stat(file, &s) != nil {
		return false
	}
	switch {
	case s.Uid == 0:
		return s.Mode&0o400 == 0
	case s.Gid == 0:
		return s.Mode&0o040 == 0
	}
	return s.Mode&0o004 == 0
}

// checkSecrets says whether the files with passwords and keys of reflectors can be used: without them plait does not come up. It says nothing where there are none.
func checkSecrets(x Egress) []Check {
	const name = "reflectors' secrets"
	if !x.there() {
		return nil
	}
	files := 0
	for _, r := range x.Reflectors {
		_, err := r.password()
		if err == nil {
			_, err = r.secrets()
		}
		if err != nil {
			return []Check{{name, Fail, err.Error(), "write it there, readable for root alone, or correct the name of the file in the configuration"}}
		}
		for _, file := range r.secretFiles() {
			files++
			if unitCannotRead(file) {
				return []Check{{name, Warn, "the package's unit cannot read " + file, unitReads(file)}}
			}
			if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
				return []Check{{name, Warn, file + " can be read by every user of this host", "chmod o= " + file}}
			}
		}
	}
	if files == 0 {
		return nil
	}
	return []Check{{name, OK, fmt.Sprintf("%d files can be read", files), ""}}
}

func (r Reflector) secretFiles() (out []string) {
	if r.PasswordFile != "" {
		out = append(out, r.PasswordFile)
	}
	for _, k := range r.AOKeys {
		out = append(out, k.File)
	}
	return out
}

func aoKeys(into *[]AOKey) key {
	algorithms := bgp.AOAlgorithms()
	words := make([]string, len(algorithms))
	for i, a := range algorithms {
		words[i] = string(a)
	}
	return mappings("ao_keys", func(r *reader, n *yaml.Node) {
		one := AOKey{AOKey: bgp.AOKey{Algorithm: algorithms[0]}}
		send, receive := -1, -1
		before := len(r.problems)
		r.mapping(n, "ao_keys", []key{text("file", &one.File, wrongFile), keyID("send_id", &send), keyID("receive_id", &receive), oneOf("algorithm", &one.Algorithm, words...)})
		if len(r.problems) > before {
			return
		}
		if one.File == "" || send < 0 || receive < 0 {
			r.problem(n, "ao_keys: no file, send_id or receive_id: expected all of them")
			return
		}
		one.SendID, one.ReceiveID = uint8(send), uint8(receive)
		*into = append(*into, one)
		keys := make([]bgp.AOKey, len(*into))
		for i, k := range *into {
			keys[i] = k.AOKey
		}
		if err := bgp.CheckAOKeys(keys); err != nil {
			r.problem(n, "ao_keys: %v", err)
		}
	})
}

func keyID(name string, into *int) key {
	return key{name, func(r *reader, n *yaml.Node) {
		x, err := strconv.ParseUint(n.Value, 10, 8)
		if n.Kind != yaml.ScalarNode || err != nil {
			r.problem(n, "%s: %s: expected a number from 0 to 255", name, what(n))
			return
		}
		*into = int(x)
	}}
}
