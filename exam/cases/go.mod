// The programs of the cases are no packages of perfdoctor: each is built in a directory of its own, of the modules that
// its case.yaml names. This file takes them out of the module above.
module cases

go 1.24
