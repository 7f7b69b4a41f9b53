package vm

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// While there are free cores no two machines get the same one; what is given back is free again.
func TestClaimCore(t *testing.T) {
	claims := fmt.Sprintf("@plait-test-%d-", os.Getpid())
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	if may.Count() < 2 {
		if core, _ := claimCore(claims); core != -1 {
			t.Errorf("core %d of one; want none", core)
		}
		return
	}
	first, free := claimCore(claims)
	second, freeSecond := claimCore(claims)
	defer freeSecond()
	if first == second || !may.IsSet(first) || !may.IsSet(second) {
		t.Errorf("cores %d and %d; want two of those this process may use", first, second)
	}
	free()
	for range may.Count() {
		if core, free := claimCore(claims); core == first {
			free()
			return
		}
	}
	t.Errorf("core %d was given back, but is not found again", first)
}
