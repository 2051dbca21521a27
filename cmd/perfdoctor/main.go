// Command perfdoctor says what holds a Linux system back, with numbers and arithmetic, and what to change first.
package main

import "fmt"

// version is set by the linker (see Makefile).
var version = "devel"

func main() { fmt.Println("perfdoctor", version) }
